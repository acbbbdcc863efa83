"""The code that a run was trained with, kept in its folder, so that it can be repeated.

    code.json                   identity of the code that the run uses
    code/0123456789abcdef.tar.gz, .json, and a folder: an archive, its identity, and its files, from which the ranks import

A run that was resumed with other code has several. A run uses other code from the moment that its ranks train with it: code that they
refuse does not replace the one that the run can be resumed with.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.spec.errors import PlatformError
from training.code.identity import SUFFIX, CodeIdentity, identity_file

if TYPE_CHECKING:
    from training.code.archive import CodeArchive

FOLDER = "code"
CURRENT_FILE = "code.json"

UNPACKED = "RTP_CODE_FOLDER"
"""Environment variable of a job's pods: where their code is unpacked already."""


@dataclass(frozen=True, kw_only=True)
class RunCode:
    """The code of a run.

    Attributes:
        identity: of its content.
        folder: absolute path from which the ranks import.
        files: how many it has.
        source: the folder that this command packed, where its user edits it; None if it was read from an archive.
    """

    identity: CodeIdentity
    folder: Path
    files: int = 0
    source: Path | None = None

    def dump(self) -> dict[str, Any]:
        """As JSON types."""
        return {
            "identity": self.identity.dump(),
            "folder": str(self.folder),
            "files": self.files,
            "source": None if self.source is None else str(self.source),
        }

    @classmethod
    def load(cls, record: Mapping[str, Any]) -> RunCode:
        """From the result of `dump`."""
        return cls(
            identity=CodeIdentity.load(record["identity"]),
            folder=Path(record["folder"]),
            files=int(record["files"]),
            source=None if record["source"] is None else Path(record["source"]),
        )

    def describe(self) -> dict[str, Any]:
        """What the run's log, MLflow and the report record of it, as JSON types."""
        return {**self.identity.dump(), "archive": archive_name(self.identity), "files": self.files}


def archive_name(identity: CodeIdentity) -> str:
    """Path of an archive within the run's folder."""
    return f"{FOLDER}/{identity.short}{SUFFIX}"


def keep(run: Path, archive: CodeArchive) -> RunCode:
    """Keep an archive in a run's folder, and unpack it. A run without code of its own uses it from now on.

    Raises:
        PlatformError: the archive is damaged, or an unpacked folder was changed.
    """
    from training.code.archive import file_names  # noqa: PLC0415 - not without code of one's own

    kept = run / archive_name(archive.identity)
    kept.parent.mkdir(exist_ok=True)
    identity = json.dumps(archive.identity.dump()).encode()
    if archive.source.resolve() != kept.resolve():
        _write(kept, archive.data)
        _write(identity_file(kept), identity)
    folder = _unpacked(run, archive)
    if not (run / CURRENT_FILE).exists():
        _write(run / CURRENT_FILE, identity)
    return RunCode(identity=archive.identity, folder=folder, files=len(file_names(archive)), source=archive.folder)


def share(code: RunCode, *, of: Path, run: Path) -> None:
    """Let a run use the code that another folder keeps. It gets the archive, so that it can be repeated by itself.

    Args:
        code: the code.
        of: folder that keeps it, as a run's does.
        run: the run's folder.

    Raises:
        OSError: the archive is gone, or cannot be written.
    """
    (run / FOLDER).mkdir(exist_ok=True)
    archive = of / archive_name(code.identity)
    for source in (identity_file(archive), archive):
        target = run / source.relative_to(of)
        try:
            os.link(source, target)
        except FileExistsError:
            continue
        except OSError:  # another file system, or one without hard links
            _write(target, source.read_bytes())
    use(run, code)


def use(run: Path, code: RunCode) -> None:
    """Record the code that a run uses: its ranks train with it."""
    _write(run / CURRENT_FILE, json.dumps(code.identity.dump()).encode())


def current_identity(run: Path) -> CodeIdentity | None:
    """Identity of the code that a run uses; None for a run without code of its own.

    Raises:
        PlatformError: the record is damaged.
    """
    file = run / CURRENT_FILE
    try:
        return CodeIdentity.load(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlatformError(
            f"{file} does not name the run's code: {type(error).__name__}: {error}",
            remedy=f"replace it by a copy of the JSON file beside the archive in {run / FOLDER} that the run was trained with",
        ) from error


def current(run: Path) -> CodeArchive | None:
    """The archive that a run uses; None for a run without code of its own.

    Raises:
        PlatformError: the archive is gone or damaged.
    """
    identity = current_identity(run)
    if identity is None:
        return None
    from training.code.archive import read_archive  # noqa: PLC0415 - not without code of one's own

    file = run / archive_name(identity)
    if not file.exists():
        raise PlatformError(
            f"{file}: the archive of the code that run {run.name} was trained with is gone (sha256 {identity.sha256})",
            remedy=f"restore it, or resume with your own copy: make resume NAME={run} CODE=folder",
        )
    return read_archive(file, identity)


def current_folder(run: Path) -> Path | None:
    """The folder to import a run's code from, unpacked if it is not yet; None for a run without code of its own.

    Raises:
        PlatformError: as `current`, or an unpacked folder was changed.
    """
    archive = current(run)
    return None if archive is None else _unpacked(run, archive)


def _unpacked(run: Path, archive: CodeArchive) -> Path:
    from training.code.archive import unpack  # noqa: PLC0415 - not without code of one's own

    if unpacked := os.environ.get(UNPACKED):
        return Path(unpacked)
    folder = (run / FOLDER / archive.identity.short).resolve()
    unpack(archive, folder)
    return folder


def _write(file: Path, data: bytes) -> None:
    """Replace a file; drivers on several machines may write the same one."""
    partial = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
    partial.write_bytes(data)
    partial.replace(file)
