"""Container images without a registry: write an archive, and import it into the nodes of a sandbox."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.lifecycle.sandbox.node.configuration import CONTAINERD_SOCKET
from infra.lifecycle.sandbox.node.leftovers import node_folder
from infra.lifecycle.sandbox.node.machine import done, entering
from infra.spec.errors import PlatformError, RefusedError, SettingsError

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_START_SECONDS = 60.0
_POLL_SECONDS = 0.1


def write_image(archive: Path, *, name: str, files: Mapping[str, Path], entrypoint: Sequence[str]) -> None:
    """Write an image of one layer, in the format of `docker save`.

    Args:
        archive: the file to write.
        name: name with tag, e.g. `sandbox.local/pause:1`.
        files: program by its path in the image.
        entrypoint: command of a container.
    """
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for target, source in files.items():
            entry = tarfile.TarInfo(target.lstrip("/"))
            entry.mode, entry.size = 0o755, source.stat().st_size
            with source.open("rb") as contents:
                tar.addfile(entry, contents)
    configuration = json.dumps(
        {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"]},
        }
    ).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    parts = {"config.json": configuration, "layer.tar": layer.getvalue(), "manifest.json": manifest}
    with tarfile.open(archive, "w") as tar:
        for part, data in parts.items():
            entry = tarfile.TarInfo(part)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


def import_image(folder: Path, archive: Path) -> tuple[str, ...]:
    """Import an archive into every real node of a running sandbox.

    Args:
        folder: the sandbox's folder.
        archive: an image archive of docker or OCI (`docker save`, `buildah push docker-archive:…`).

    Returns:
        the nodes that have it now.

    Raises:
        SettingsError: there is no such file.
        RefusedError: the sandbox has no real node.
        PlatformError: containerd refused the archive; carries its reason.
    """
    if not archive.is_file():
        raise SettingsError(
            f"image archive {archive}: no such file", remedy="write it with `docker save` or `buildah push`"
        )
    records = sorted(node_folder(folder).glob("*/snapshotter"))
    if not records:
        raise RefusedError(f"the sandbox in {folder} has no real node", remedy="start it with make sandbox REAL=1")
    for record in records:
        process = int((record.parent / "pid").read_text(encoding="utf-8"))
        import_into(process, archive, snapshotter=record.read_text(encoding="utf-8"))
    return tuple(record.parent.name for record in records)


def import_into(process: int, archive: Path, *, snapshotter: str) -> None:
    """Import an archive into one node, whose containerd may just be starting.

    Args:
        process: a process in the node's namespaces.
        archive: the image archive.
        snapshotter: containerd's.

    Raises:
        PlatformError: containerd does not run, or refused the archive.
    """
    ctr = [*entering(process), "ctr", f"--address={CONTAINERD_SOCKET}", "--namespace=k8s.io"]
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            done(*ctr, "version")
            break
        except PlatformError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)
    done(*ctr, "images", "import", f"--snapshotter={snapshotter}", archive.resolve())


def main(arguments: Sequence[str]) -> int:
    """`python -m infra.lifecycle.sandbox.node.images FOLDER ARCHIVE`: see `import_image`."""
    folder, archive = map(Path, arguments)
    try:
        nodes = import_image(folder, archive)
    except PlatformError as error:
        print(error, file=sys.stderr)
        return error.status
    print(f"{archive}: imported into {', '.join(nodes)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
