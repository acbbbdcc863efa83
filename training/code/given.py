"""The code that a command line names: a folder, or an archive that a run has kept."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from training.code.identity import is_archive
from training.code.import_path import on_import_path

if TYPE_CHECKING:
    from training.code.archive import CodeArchive

CONFIGURATION = "train.yaml"
"""File at the top of a code folder with the settings of a run that names no configuration."""


@dataclass(frozen=True, kw_only=True)
class GivenCode:
    """Code to train with.

    Attributes:
        archive: what the run keeps.
        folder: where its files are while the command line is checked.
    """

    archive: CodeArchive
    folder: Path

    def configuration(self) -> list[str]:
        """The configuration at its top, if it has one."""
        file = self.folder / CONFIGURATION
        return [str(file)] if file.is_file() else []


def configurations(named: tuple[str, ...], code: GivenCode | None) -> list[str]:
    """The configurations of a run: those that are named, else the one of its code, else the smallest that is shipped."""
    return list(named) or (code.configuration() if code else []) or ["digits"]


def given_code(path: Path | None) -> CodeArchive | None:
    """The code that a command line names, if it does; says on standard error what of a folder is left out.

    Raises:
        PlatformError: see `pack` and `read_archive`.
    """
    if path is None:
        return None
    archive = open_code(path)
    report_left_out(archive)
    return archive


def open_code(path: Path) -> CodeArchive:
    """Pack a folder, or read an archive.

    Raises:
        PlatformError: see `pack` and `read_archive`.
    """
    from training.code.archive import pack, read_archive  # noqa: PLC0415 - not without code of one's own

    return read_archive(path) if is_archive(path) else pack(path)


@contextmanager
def importable(archive: CodeArchive | None, *, with_packages: bool = True) -> Iterator[GivenCode | None]:
    """Code whose modules are found in the block, to check names in the settings; the ranks import a copy.

    Args:
        archive: the code; None without.
        with_packages: install the packages that it requires; a job on a cluster has them in its image.

    Raises:
        PlatformError: the archive is damaged.
    """
    if archive is None:
        yield None
        return
    with files_of(archive) as folder, on_import_path(folder, with_packages=with_packages):
        yield GivenCode(archive=archive, folder=folder)


@contextmanager
def files_of(archive: CodeArchive) -> Iterator[Path]:
    """The folder that was packed, else one with the files of the archive for the duration of the block.

    Raises:
        PlatformError: the archive is damaged.
    """
    if archive.folder is not None:
        yield archive.folder
        return
    import tempfile  # noqa: PLC0415 - not without code of one's own

    from training.code.archive import unpack  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve() / "code"
        unpack(archive, folder)
        yield folder


def report_left_out(archive: CodeArchive) -> None:
    """Say on standard error what of a folder was not packed."""
    from training.code.selection import describe_left_out  # noqa: PLC0415 - not without code of one's own

    left_out = "" if archive.selection is None else describe_left_out(archive.selection)
    if left_out:
        print(f"left out of the code archive: {left_out}", file=sys.stderr)
