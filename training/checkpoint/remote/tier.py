"""The checkpoints of a run in a bucket: upload, list, fetch, prune.

An object store has no rename and no folders. A checkpoint's objects are below `step-00000050/`, and it exists once its manifest does, which
is uploaded last and removed first. So nothing torn is ever a checkpoint: an upload that ends early leaves no object of the file, and no
manifest of the step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from training.checkpoint.manifest import MANIFEST_FILE, Manifest
from training.checkpoint.remote.bucket import RemoteObject, RemoteStoreError, RunBucket
from training.checkpoint.storage import sha256_of
from training.checkpoint.store import CheckpointStore, folder_name, step_of

_FETCHES = 2
"""Attempts to download a checkpoint whose files do not match its manifest: what was damaged on the way is not the second time."""


@dataclass(frozen=True, kw_only=True)
class RemoteCheckpoint:
    """A committed checkpoint in the bucket.

    Attributes:
        manifest: its manifest.
        problems: files that are missing or have another size; their hashes are compared when they are downloaded.
    """

    manifest: Manifest
    problems: tuple[str, ...]

    @property
    def step(self) -> int:
        """Optimizer steps done."""
        return self.manifest.step


class RemoteTier:
    """All checkpoints of one run in a bucket. Every method may raise `RemoteStoreError`; one process writes."""

    def __init__(self, bucket: RunBucket) -> None:
        self._bucket = bucket
        # A manifest never changes under one entity tag, so each is read once.
        self._manifests: dict[tuple[str, str], Manifest | None] = {}

    @property
    def url(self) -> str:
        """Where the checkpoints are, for people."""
        return self._bucket.location.url

    def checkpoints(self) -> list[RemoteCheckpoint]:
        """The committed checkpoints, oldest first, by a list and by their manifests. A damaged manifest commits nothing."""
        found = []
        for step, objects in sorted(self._folders().items()):
            manifest = self._manifest(step, objects)
            if manifest is not None:
                found.append(RemoteCheckpoint(manifest=manifest, problems=tuple(_problems(manifest, objects))))
        return found

    def upload(
        self,
        manifest: Manifest,
        folder: Path,
        *,
        confirm: Callable[[], None],
        on_bytes: Callable[[int], None],
    ) -> None:
        """Upload a checkpoint; it is committed when this returns. An older one of the same step is removed first.

        Args:
            manifest: of the checkpoint.
            folder: its folder on this machine.
            confirm: called before anything is removed and before the manifest is uploaded; raises if another process writes here now.
            on_bytes: called by several threads with the number of bytes sent.

        Raises:
            OSError: a file of the folder cannot be read.
        """
        name = folder_name(manifest.step)
        confirm()
        self._remove([manifest.step])
        self._bucket.upload(
            {f"{name}/{file.name}": folder / file.name for file in manifest.files},
            on_bytes=on_bytes,
        )
        confirm()
        self._bucket.write(f"{name}/{MANIFEST_FILE}", manifest.encode())

    def put(self, name: str, data: bytes) -> None:
        """Keep a small file beside the checkpoints."""
        self._bucket.write(name, data)

    def fetch(self, checkpoint: RemoteCheckpoint, store: CheckpointStore) -> list[str]:
        """Copy a checkpoint into the local store, where it is committed if every file matches the manifest; returns the problems.

        Raises:
            CheckpointError: the local storage failed, e.g. because the disk is full.
        """
        if checkpoint.problems:
            return list(checkpoint.problems)
        name = folder_name(checkpoint.step)
        files = {file.name: partial(self._bucket.download, f"{name}/{file.name}") for file in checkpoint.manifest.files}
        problems: list[str] = []
        for _ in range(_FETCHES):
            try:
                problems = store.adopt(checkpoint.manifest, files)
            except RemoteStoreError as error:  # also content that is not what the store's own checksum says
                problems = [str(error)]
            if not problems:
                break
        return problems

    def verify(self, checkpoint: RemoteCheckpoint, scratch: Path) -> list[str]:
        """The problems of a checkpoint; none if all sizes and hashes match its manifest. Reads every file into `scratch`, one at a time."""
        problems = list(checkpoint.problems)
        for file in () if problems else checkpoint.manifest.files:
            path = scratch / file.name
            try:
                self._bucket.download(f"{folder_name(checkpoint.step)}/{file.name}", path)
            except RemoteStoreError as error:
                problems.append(f"{file.name} cannot be read: {error.reason}")
                continue
            if sha256_of(path) != file.sha256:
                problems.append(f"{file.name} does not match its sha256")
            path.unlink()
        return problems

    def keep_only(self, steps: Collection[int]) -> None:
        """Remove all other steps, complete or not."""
        self._remove(step for step in self._folders() if step not in steps)

    def remove_unfinished(self) -> None:
        """Remove what crashed uploads have left: folders without a manifest, and parts of files.

        A store that does not list uploads to this identity expires them by its own rule, as the stack's buckets do.
        """
        self._remove(
            step
            for step, objects in self._folders().items()
            if not any(one.name.endswith(f"/{MANIFEST_FILE}") for one in objects)
        )
        with suppress(RemoteStoreError):
            self._bucket.abort_uploads()

    def _folders(self) -> dict[int, list[RemoteObject]]:
        """The objects of each step."""
        found: defaultdict[int, list[RemoteObject]] = defaultdict(list)
        for one in self._bucket.objects("step-"):
            step = step_of(one.name.partition("/")[0])
            if step is not None:
                found[step].append(one)
        return dict(found)

    def _manifest(self, step: int, objects: Iterable[RemoteObject]) -> Manifest | None:
        name = f"{folder_name(step)}/{MANIFEST_FILE}"
        for one in objects:
            if one.name != name:
                continue
            version = (name, one.etag)
            if version not in self._manifests:
                self._manifests[version] = _decoded(self._bucket.read(name).data, step)
            return self._manifests[version]
        return None

    def _remove(self, steps: Iterable[int]) -> None:
        """Remove all objects of steps, the manifest before any other."""
        wanted = {folder_name(step) for step in steps}
        if not wanted:
            return
        names = [one.name for one in self._bucket.objects("step-") if one.name.partition("/")[0] in wanted]
        self._bucket.remove(*sorted(names, key=lambda name: not name.endswith(f"/{MANIFEST_FILE}")))


def _decoded(data: bytes, step: int) -> Manifest | None:
    with suppress(ValueError):
        manifest = Manifest.decode(data)
        return manifest if manifest.step == step else None
    return None


def _problems(manifest: Manifest, objects: Iterable[RemoteObject]) -> Iterable[str]:
    sizes = {one.name.partition("/")[2]: one.bytes for one in objects}
    for file in manifest.files:
        if file.name not in sizes:
            yield f"{file.name} is missing"
        elif sizes[file.name] != file.bytes:
            yield f"{file.name} has {sizes[file.name]} bytes instead of {file.bytes}"
