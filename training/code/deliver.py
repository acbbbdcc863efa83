"""Unpacks a job's own code in a pod: the program of an init container (`platform_charts.jobs.code`).

    python -m training.code.deliver --identity=JSON --parts=FOLDER --archive=FILE --files=FOLDER

Exit status: 0, or 1 if the archive is not the one that was submitted; the last lines then say why.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.spec.errors import PlatformError
from training.code.archive import CodeArchive, unpack, verified_tar
from training.code.identity import CodeIdentity, identity_file


def deliver(identity: CodeIdentity, *, parts: Path, archive: Path, files: Path) -> None:
    """Join an archive, verify it, and only then write it and its files.

    Args:
        identity: of what was submitted.
        parts: folder with the parts of the archive, in the order of their names.
        archive: where it is written, with its identity beside it.
        files: folder to unpack it into; one that a container before this one has unpacked is compared.

    Raises:
        PlatformError: it is not what was submitted; with both hashes.
        OSError: a part cannot be read, or a file not written.
    """
    found = sorted(one for one in parts.iterdir() if not one.name.startswith("."))  # the kubelet's own begin with a dot
    data = b"".join(one.read_bytes() for one in found)
    verified_tar(data, identity.sha256, name=f"{len(found)} ConfigMaps of the job")
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(data)
    identity_file(archive).write_text(json.dumps(identity.dump()), encoding="utf-8")
    unpack(CodeArchive(identity=identity, data=data, source=archive), files)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m training.code.deliver", description=__doc__)
    made.add_argument("--identity", required=True, help="identity of the code, as JSON")
    made.add_argument("--parts", required=True, type=Path, help="folder with the parts of the archive")
    made.add_argument("--archive", required=True, type=Path, help="file to write the archive to")
    made.add_argument("--files", required=True, type=Path, help="folder to write its files to")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run once."""
    options = parser().parse_args(arguments)
    identity = CodeIdentity.load(json.loads(options.identity))
    try:
        deliver(identity, parts=options.parts, archive=options.archive, files=options.files)
    except PlatformError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: the job's code cannot be unpacked: {error}", file=sys.stderr)
        return 1
    print(f"code {identity.describe()} in {options.files}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
