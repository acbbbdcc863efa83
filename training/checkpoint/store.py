"""The checkpoints of a run: commit, find the newest good one, verify, prune.

A checkpoint is a folder `step-00000050/` with the files that its manifest lists. The manifest is written last: a folder
without one is the leftover of a crashed writer: it is never read, and the next writer removes it.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Lock

from training.checkpoint.manifest import (
    LOOP_STATE_FILE,
    MANIFEST_FILE,
    WHOLE_FORMAT,
    FileEntry,
    Identity,
    LoopState,
    Manifest,
    TrainProgress,
)
from training.checkpoint.storage import LocalStorage, Storage, sha256_of
from training.errors import CheckpointError, ResumeMismatchError

FOLDER = "checkpoints"
"""Folder of the checkpoints in a run's folder."""

FileWriter = Callable[[Path], None]
"""Writes one file of a checkpoint to the given path; raises OSError if storage fails."""

_COPIES = 4
"""Files that are copied at the same time."""

_FOLDER_NAME = re.compile(r"step-(\d{8,})")


@dataclass(frozen=True, kw_only=True)
class VerifiedCheckpoint:
    """A checkpoint that verified and belongs to the run; `training.checkpoint.stateful` restores it.

    Attributes:
        path: folder with its files, on this machine.
        manifest: its manifest.
        state: its state that is not tensors.
        skipped: newer checkpoints that were skipped, each with the reason.
        notes: recorded differences to the resuming run, e.g. another world size.
    """

    path: Path
    manifest: Manifest
    state: LoopState
    skipped: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def progress(self) -> TrainProgress:
        """How far the run had come."""
        return self.state.progress


class CheckpointStore:
    """All checkpoints of one run. One process writes; any number may read at the same time."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._pinning = Lock()
        self._pins: list[int] = []

    def folder_steps(self) -> list[int]:
        """Steps of all folders, oldest first, including those without a complete checkpoint."""
        steps = map(step_of, self._storage.folders())
        return sorted(step for step in steps if step is not None)

    def manifests(self) -> list[Manifest]:
        """The manifests that are complete, oldest first; the other files are not checked.

        Raises:
            OSError: storage failed; the checkpoints may be good.
        """
        found = []
        for step in self.folder_steps():
            with suppress(FileNotFoundError, ValueError):
                found.append(self._manifest(step))
        return found

    def steps(self) -> list[int]:
        """Steps of the checkpoints whose manifest is complete, oldest first."""
        return [manifest.step for manifest in self.manifests()]

    def path(self, step: int) -> Path:
        """The folder of a step's checkpoint, on this machine."""
        return self._storage.local(folder_name(step))

    def verify(self, step: int) -> list[str]:
        """The problems of a step's checkpoint; none if all sizes and hashes match its manifest."""
        return self._problems(step, None)

    def newest_good(self, identity: Identity) -> VerifiedCheckpoint | None:
        """The newest checkpoint that verifies, None if the run has none.

        Folders without a manifest are skipped: they were never committed.

        Raises:
            ResumeMismatchError: a checkpoint belongs to another model, dataset, global batch or seed.
            CheckpointError: there are checkpoints, but none verifies.
        """
        skipped: list[str] = []
        folders = self.folder_steps()
        for step in reversed(folders):
            problems = self._problems(step, identity)
            if not problems:
                return self._verified(step, identity, skipped)
            skipped.append(f"{folder_name(step)}: {'; '.join(problems)}")
        committed = len(folders) - len(self._unfinished())
        if committed:
            raise CheckpointError(
                f"none of the {committed} checkpoints in {self._storage.location} is good: {' | '.join(skipped)}",
                remedy="restore a checkpoint from a backup, or start a new run under another run.name",
            )
        return None

    def open(self, step: int, identity: Identity, *, hashes: bool = True) -> VerifiedCheckpoint:
        """The checkpoint of a given step, e.g. the one that rank 0 chose.

        Args:
            step: optimizer steps done.
            identity: the run.
            hashes: verify the content of the files, not only their sizes. Reads them all.

        Raises:
            ResumeMismatchError: it belongs to another model, dataset, global batch or seed.
            CheckpointError: it does not verify.
        """
        if problems := self._problems(step, identity, hashes=hashes):
            others = [str(other) for other in self.steps() if other != step]
            raise CheckpointError(
                f"the checkpoint {self.path(step)} is not good: {'; '.join(problems)}",
                remedy=f"choose one of the steps {', '.join(others)}" if others else "the run has no other checkpoint",
            )
        return self._verified(step, identity, [])

    def commit(
        self,
        *,
        step: int,
        identity: Identity,
        metric: float | None,
        files: Mapping[str, FileWriter],
        expected_bytes: int,
    ) -> Manifest:
        """Write a checkpoint with whole tensors; it is committed when this returns. Earlier content of the step's folder is removed first.

        Args:
            step: optimizer steps done.
            identity: the run.
            metric: the metric at this step, None if it was not measured.
            files: the writer of each file, by name.
            expected_bytes: size of all files, for the message when the disk is full.

        Raises:
            CheckpointError: storage failed. The folder is removed; other checkpoints are unchanged.
        """
        try:
            self.clear(step)
            entries = self.write(step, files, expected_bytes=expected_bytes)
            return self.seal(step=step, identity=identity, metric=metric, files=entries, layout=WHOLE_FORMAT)
        except CheckpointError:
            self.discard(step)
            raise

    def clear(self, step: int) -> None:
        """Remove earlier content of a step's folder, the manifest durably before any other file.

        Raises:
            CheckpointError: storage failed.
        """
        with self._explained(step):
            self._storage.remove(folder_name(step), first=MANIFEST_FILE)

    def discard(self, step: int) -> None:
        """Remove what was written of a step, if storage allows it; without a manifest it is no checkpoint anyway."""
        with suppress(OSError):
            self._storage.remove(folder_name(step), first=MANIFEST_FILE)

    def write(self, step: int, files: Mapping[str, FileWriter], *, expected_bytes: int) -> tuple[FileEntry, ...]:
        """Write files of a step, which `seal` commits; several processes may write files of other names at the same time.

        Args:
            step: optimizer steps done.
            files: the writer of each file, by name.
            expected_bytes: size of all files, for the message when the disk is full.

        Raises:
            CheckpointError: storage failed. What was written remains.
        """
        with self._explained(step, expected_bytes):
            return tuple(self._write(folder_name(step), name, write) for name, write in files.items())

    def seal(
        self, *, step: int, identity: Identity, metric: float | None, files: Sequence[FileEntry], layout: int
    ) -> Manifest:
        """Commit what was written of a step, by its manifest.

        Args:
            step: optimizer steps done.
            identity: the run.
            metric: the metric at this step, None if it was not measured.
            files: everything that was written, by any process.
            layout: the format of the manifest.

        Raises:
            CheckpointError: storage failed, or does not have what another process has written.
        """
        with self._explained(step, sum(file.bytes for file in files)):
            sizes = self._storage.sizes(folder_name(step))
            if absent := [file.name for file in files if sizes.get(file.name) != file.bytes]:
                raise CheckpointError(
                    f"{self.path(step)} has no complete {absent[0]}, which a rank has written there",
                    remedy="set run.directory to a file system that all nodes share, and resume the run",
                )
            manifest = Manifest(
                step=step,
                identity=identity,
                metric=metric,
                files=tuple(files),
                created=datetime.now(UTC).isoformat(timespec="milliseconds"),
                format=layout,
            )
            self._write_manifest(manifest)
        return manifest

    def adopt(self, manifest: Manifest, files: Mapping[str, FileWriter]) -> list[str]:
        """Commit a copy of a checkpoint if every file matches the manifest; returns the problems, of which it leaves nothing.

        Args:
            manifest: of the checkpoint, which is written as it is.
            files: the writer of each file, by name; they run in parallel.

        Raises:
            CheckpointError: storage failed. The folder is removed; other checkpoints are unchanged.
        """
        step, name = manifest.step, folder_name(manifest.step)
        try:
            with self._explained(step, manifest.total_bytes), ThreadPoolExecutor(_COPIES) as threads:
                self._storage.remove(name, first=MANIFEST_FILE)
                entries = list(threads.map(partial(self._write, name), files, files.values()))
                problems = [
                    f"{want.name} does not match its sha256"
                    for want, have in zip(manifest.files, entries, strict=True)
                    if want != have
                ]
                if not problems:
                    self._write_manifest(manifest)
        except BaseException:
            self.discard(step)
            raise
        if problems:
            self.discard(step)
        return problems

    @contextmanager
    def pinned(self, step: int) -> Iterator[None]:
        """Keep `keep_only` from removing a step while the block reads it, in whichever thread."""
        with self._pinning:
            self._pins.append(step)
        try:
            yield
        finally:
            with self._pinning:
                self._pins.remove(step)

    def remove_unfinished(self) -> list[str]:
        """Remove the folders that have no manifest; returns an error message for each that could not be removed."""
        return self._remove(self._unfinished())

    def keep_only(self, steps: Collection[int]) -> list[str]:
        """Remove the folders of all other steps that are not pinned; returns an error message for each that could not be removed."""
        with self._pinning:
            kept = {*steps, *self._pins}
            return self._remove(step for step in self.folder_steps() if step not in kept)

    def _remove(self, steps: Iterable[int]) -> list[str]:
        failures = []
        for step in steps:
            try:
                self._storage.remove(folder_name(step), first=MANIFEST_FILE)
            except OSError as error:
                failures.append(f"the checkpoint {self.path(step)} could not be removed: {error}")
        return failures

    def _unfinished(self) -> list[int]:
        return [step for step in self.folder_steps() if MANIFEST_FILE not in self._storage.sizes(folder_name(step))]

    def _manifest(self, step: int) -> Manifest:
        try:
            data = (self.path(step) / MANIFEST_FILE).read_bytes()
        except OSError as error:
            if error.errno in {errno.EISDIR, errno.ELOOP}:
                raise ValueError("it is not a file") from error
            raise
        manifest = Manifest.decode(data)
        if manifest.step != step:
            raise ValueError(f"it belongs to step {manifest.step}")
        return manifest

    def _problems(self, step: int, identity: Identity | None, *, hashes: bool = True) -> list[str]:
        try:
            manifest = self._manifest(step)
        except FileNotFoundError:
            return [f"{MANIFEST_FILE} is missing, the write did not finish"]
        except (OSError, ValueError) as error:
            return [f"{MANIFEST_FILE} is damaged: {error}"]
        if identity is not None:
            # Before the hashes, which take minutes for a large checkpoint.
            self._refuse_another_run(manifest, identity)
        try:
            return list(self._file_problems(manifest, hashes=hashes))
        except OSError as error:
            return [f"its files cannot be read: {error}"]

    def _file_problems(self, manifest: Manifest, *, hashes: bool) -> Iterator[str]:
        folder = folder_name(manifest.step)
        sizes = self._storage.sizes(folder)
        for file in manifest.files:
            if file.name not in sizes:
                yield f"{file.name} is missing"
            elif sizes[file.name] != file.bytes:
                yield f"{file.name} has {sizes[file.name]} bytes instead of {file.bytes}"
            elif hashes and sha256_of(self._storage.local(folder) / file.name) != file.sha256:
                yield f"{file.name} does not match its sha256"

    def _refuse_another_run(self, manifest: Manifest, identity: Identity) -> None:
        if mismatches := manifest.identity.mismatches(identity):
            error = ResumeMismatchError(
                f"the checkpoint {self.path(manifest.step)} belongs to another run: {'; '.join(mismatches)}",
                remedy="set model.name, objective.name, data.*, loop.global_batch and run.seed back to the saved values, "
                "or start a new run under another run.name",
            )
            if manifest.identity.dataset_fingerprint != identity.dataset_fingerprint:
                error.dataset_fingerprint = manifest.identity.dataset_fingerprint
            raise error

    def _verified(self, step: int, identity: Identity, skipped: list[str]) -> VerifiedCheckpoint:
        manifest = self._manifest(step)
        return VerifiedCheckpoint(
            path=self.path(step),
            manifest=manifest,
            state=LoopState.decode((self.path(step) / LOOP_STATE_FILE).read_bytes()),
            skipped=tuple(skipped),
            notes=tuple(manifest.identity.notes(identity)),
        )

    def _write_manifest(self, manifest: Manifest) -> None:
        with self._storage.writing(folder_name(manifest.step), MANIFEST_FILE) as path:
            path.write_bytes(manifest.encode())

    def _write(self, folder: str, name: str, write: FileWriter) -> FileEntry:
        with self._storage.writing(folder, name) as path:
            write(path)
            return FileEntry(name=name, bytes=path.stat().st_size, sha256=sha256_of(path))

    @contextmanager
    def _explained(self, step: int, expected_bytes: int = 0) -> Iterator[None]:
        """The block's errors of storage as ones that name the step and the remedy."""
        try:
            yield
        except OSError as error:
            raise self._failure(step, error, expected_bytes) from error

    def _failure(self, step: int, error: OSError, expected_bytes: int) -> CheckpointError:
        where = f"the checkpoint of step {step} could not be written to {self._storage.location}"
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return CheckpointError(
                f"{where}: {error.strerror}", remedy="older checkpoints are untouched; check the file system and resume"
            )
        return CheckpointError(
            f"{where}: it needs {expected_bytes} bytes and {self._storage.free_bytes()} are free",
            remedy="free space there, lower checkpoint.keep_last or keep_best, or set run.directory to a larger disk; "
            "older checkpoints are untouched, so the run can be resumed",
        )


def folder_name(step: int) -> str:
    """Name of the folder of a step's checkpoint."""
    return f"step-{step:08d}"


def step_of(folder: str) -> int | None:
    """The step of a folder's name; None if it is no checkpoint's."""
    match = _FOLDER_NAME.fullmatch(folder)
    return int(match[1]) if match else None


def bytes_writer(data: bytes) -> FileWriter:
    """A writer of a file with the given content."""

    def write(path: Path) -> None:
        path.write_bytes(data)

    return write


def local_store(directory: Path) -> CheckpointStore:
    """The checkpoints in a local or mounted directory."""
    return CheckpointStore(LocalStorage(directory))


def committed_steps(directory: Path) -> list[int]:
    """Steps of the committed checkpoints in a directory, oldest first."""
    return local_store(directory).steps()


def verify_run(run_directory: Path) -> list[tuple[Path, list[str]]]:
    """Every checkpoint folder of a run, oldest first, with its problems.

    A folder that a crash left without a manifest is included, with that problem.
    """
    store = local_store(run_directory / FOLDER)
    return [(store.path(step), store.verify(step)) for step in store.folder_steps()]
