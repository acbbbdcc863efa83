"""Locates the files of a dataset whose files hold many samples each, one folder per split. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from training.errors import DataError

VALIDATION_FOLDERS = ("val", "validation", "valid")
"""Names that the folder of the validation split may have; the first that there is counts."""


@dataclass(frozen=True, kw_only=True)
class SplitFiles:
    """The files of each split, sorted by path.

    Attributes:
        root: folder of the dataset.
        train: files of the training split.
        validation: files of the validation split; none if samples of `train` are held out for it.
        test: files of the test split; none if the validation split serves as test split.
    """

    root: Path
    train: tuple[Path, ...]
    validation: tuple[Path, ...]
    test: tuple[Path, ...]

    @property
    def all(self) -> tuple[Path, ...]:
        """The files of all splits, one split after the other."""
        return self.train + self.validation + self.test

    def __iter__(self) -> Iterator[tuple[Path, ...]]:
        """The files of train, validation and test."""
        return iter((self.train, self.validation, self.test))

    def name(self, file: Path) -> str:
        """Path of a file below the dataset's folder."""
        return file.relative_to(self.root).as_posix()


def locate_parquet(path: Path) -> SplitFiles:
    """Locates the `.parquet` files of a dataset; see `locate_split_files`."""
    return locate_split_files(path, ".parquet")


def locate_tar_shards(path: Path) -> SplitFiles:
    """Locates the `.tar` files of a dataset; see `locate_split_files`."""
    return locate_split_files(path, ".tar")


def locate_split_files(path: Path, suffix: str) -> SplitFiles:
    """Locates the files under PATH/train, PATH/val (see `VALIDATION_FOLDERS`) and PATH/test, or without PATH/train those under PATH.

    Files whose name, or a folder's below PATH, begins with a dot or an underscore are no data, as for Spark and Hive.

    Raises:
        DataError: the path is not a folder, a split's folder has no such file, or a file is empty.
        OSError: a file cannot be read, e.g. a link to nothing.
    """
    remedy = f"arrange the files as PATH/train/*{suffix} and optionally PATH/val/*{suffix}, PATH/test/*{suffix}, or as PATH/*{suffix}"
    if not path.is_dir():
        raise DataError(f"data.path={path} is not a folder", remedy=remedy)
    if not (path / "train").is_dir():
        return SplitFiles(root=path, train=_files(path, suffix, remedy), validation=(), test=())
    validation = next((path / name for name in VALIDATION_FOLDERS if (path / name).is_dir()), None)
    return SplitFiles(
        root=path,
        train=_files(path / "train", suffix, remedy),
        validation=_files(validation, suffix, remedy) if validation else (),
        test=_files(path / "test", suffix, remedy) if (path / "test").is_dir() else (),
    )


def _files(folder: Path, suffix: str, remedy: str) -> tuple[Path, ...]:
    everything = sorted(file for file in folder.rglob("*") if not _is_hidden(file.relative_to(folder)))
    found = tuple(file for file in everything if file.name.lower().endswith(suffix) and not file.is_dir())
    if not found:
        others = sorted({file.suffix or file.name for file in everything if file.is_file()})[:10]
        raise DataError(
            f"{folder} has no {suffix} files, but {', '.join(others) if others else 'is empty'}", remedy=remedy
        )
    empty = [str(file) for file in found if file.stat().st_size == 0]
    if empty:
        raise DataError(f"empty (0 bytes): {', '.join(empty)}", remedy="replace or delete these files")
    return found


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)
