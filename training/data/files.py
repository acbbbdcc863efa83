"""Locates the files of a dataset and checks that they exist and are large enough, without opening them.

Imports no torch: preflight runs these checks before anything starts. The datasets repeat them when they load.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

from training.data.split_files import VALIDATION_FOLDERS
from training.errors import DataError

_CIFAR10_REMEDY = (
    "set data.path to cifar-10-python.tar.gz or cifar-10-binary.tar.gz "
    "(https://www.cs.toronto.edu/~kriz/cifar.html), or to the folder it was extracted to"
)

CIFAR10_ROWS = 10_000
"""Images in each of the six files of CIFAR-10."""

CIFAR10_PIXELS = 3 * 32 * 32
"""Bytes per image of CIFAR-10: the red, green and blue planes, each in row-major order."""


@dataclass(frozen=True, kw_only=True)
class Cifar10Layout:
    """One of the two versions of CIFAR-10, Python or binary.

    Attributes:
        folder: folder within the archive.
        archive: name of the archive.
        files: the five training files in order, then the test file.
        min_bytes: size below which a file is truncated.
    """

    folder: str
    archive: str
    files: tuple[str, ...]
    min_bytes: int


CIFAR10_PYTHON = Cifar10Layout(
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    files=(*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"),
    min_bytes=CIFAR10_ROWS * CIFAR10_PIXELS,
)
CIFAR10_BINARY = Cifar10Layout(
    folder="cifar-10-batches-bin",
    archive="cifar-10-binary.tar.gz",
    files=(*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"),
    min_bytes=CIFAR10_ROWS * (1 + CIFAR10_PIXELS),
)
CIFAR10_LAYOUTS = (CIFAR10_PYTHON, CIFAR10_BINARY)


def locate_cifar10(path: Path) -> tuple[Path, Cifar10Layout | None]:
    """Locates CIFAR-10 at a path.

    Args:
        path: the folder with the six files, the archive, or the parent folder of either.

    Returns:
        The folder with all six files and its layout; or the archive and None, because only its content shows the
        layout.

    Raises:
        DataError: the path contains neither, or a file is missing or truncated.
    """
    if path.is_file():
        return path, None
    if not path.is_dir():
        raise DataError(f"data.path={path} does not exist", remedy=_CIFAR10_REMEDY)
    for layout in CIFAR10_LAYOUTS:
        for folder in (path, path / layout.folder):
            if any((folder / name).exists() for name in layout.files):
                _check_sizes(folder, layout)
                return folder, layout
    for layout in CIFAR10_LAYOUTS:
        if (path / layout.archive).is_file():
            return path / layout.archive, None
    raise DataError(f"data.path={path} contains no CIFAR-10 files", remedy=_CIFAR10_REMEDY)


def _check_sizes(folder: Path, layout: Cifar10Layout) -> None:
    for name in layout.files:
        file = folder / name
        if not file.is_file():
            raise DataError(f"{file} is missing", remedy=f"extract {layout.archive} again")
        if (size := file.stat().st_size) < layout.min_bytes:
            raise DataError(
                f"{file} is truncated: {size} bytes, expected at least {layout.min_bytes}",
                remedy=f"extract {layout.archive} again",
            )


IMAGE_SUFFIXES = (
    ".avif", ".bmp", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tga", ".tif", ".tiff", ".webp",
)  # fmt: skip
"""File name suffixes of images that Pillow decodes, in any case; other files are counted, and left out."""

_FOLDER_REMEDY = (
    "arrange the images as PATH/train/CLASS/*.jpg, PATH/val/CLASS/*.jpg and optionally PATH/test/CLASS/*.jpg"
)


@dataclass(frozen=True, kw_only=True)
class ImageFolders:
    """The folders of an image dataset in ImageNet's layout.

    Attributes:
        train: training split, one folder per class.
        validation: validation split, or None.
        test: test split, or None.
        classes: names of the class folders under `train`, sorted; the index of a class is its label.
    """

    train: Path
    validation: Path | None
    test: Path | None
    classes: tuple[str, ...]

    @property
    def splits(self) -> tuple[Path, ...]:
        """The split folders that exist."""
        return tuple(folder for folder in (self.train, self.validation, self.test) if folder)


def locate_image_folders(path: Path) -> ImageFolders:
    """Locates the split and class folders at a path.

    Raises:
        DataError: a folder is missing, a class has no image, there are fewer than two classes, or a class occurs only
            in the validation or test split.
        OSError: a folder cannot be read, e.g. a link to nothing.
    """
    if not path.is_dir():
        raise DataError(f"data.path={path} is not a folder", remedy=_FOLDER_REMEDY)
    if not (path / "train").is_dir():
        raise DataError(f"data.path={path} has no folder named train", remedy=_FOLDER_REMEDY)
    folders = ImageFolders(
        train=path / "train",
        validation=_existing(*(path / name for name in VALIDATION_FOLDERS)),
        test=_existing(path / "test"),
        classes=tuple(_class_names(path / "train")),
    )
    if len(folders.classes) < 2:
        raise DataError(
            f"{folders.train} has {len(folders.classes)} class folder(s), expected at least 2", remedy=_FOLDER_REMEDY
        )
    for split in folders.splits:
        _check_classes(split, folders.classes)
    return folders


def list_images(folder: Path, left_out: Counter[str]) -> Iterator[tuple[str, int]]:
    """Yields the name and size in bytes of each image of a class, sorted by name; of those in folders below it with the path from there.

    Args:
        folder: of the class.
        left_out: counts the other files, by their suffix or as `hidden`.

    Raises:
        DataError: an image file is empty, or is not a file.
        OSError: a file or a folder cannot be read, e.g. a link to nothing.
    """
    for name, entry in sorted(_files_below(folder), key=itemgetter(0)):
        if entry.name.startswith("."):
            left_out["hidden"] += 1
        elif not _is_image(entry):
            left_out[Path(entry.name).suffix.lower() or "without a suffix"] += 1
        else:
            status = entry.stat()
            if not stat.S_ISREG(status.st_mode):
                raise DataError(f"image {entry.path} is not a file", remedy="replace, rename or delete it")
            if status.st_size == 0:
                raise DataError(f"image {entry.path} is empty (0 bytes)", remedy="replace or delete the file")
            yield name, status.st_size


def _files_below(
    folder: Path, path: str = "", above: frozenset[tuple[int, int]] = frozenset()
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The files of a folder and of those below it, each with its path from there; hidden folders, and links to one above, are passed over.

    Args:
        folder: what is listed.
        path: that of the folder itself, with a slash at its end.
        above: the folders above it, by device and inode.
    """
    status = folder.stat()
    if (place := (status.st_dev, status.st_ino)) in above:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir():
                yield path + entry.name, entry
            elif not entry.name.startswith("."):
                yield from _files_below(Path(entry.path), f"{path}{entry.name}/", above | {place})


def locate_text_files(path: Path) -> list[Path]:
    """The `.txt` files, in any case, of a folder and of those in it, sorted by path.

    Raises:
        DataError: there is no such folder, it has no such file, or all are empty.
        OSError: a file cannot be read, e.g. a link to nothing.
    """
    if not path.is_dir():
        raise DataError(f"data.path={path} is not a folder", remedy="set data.path to a folder with .txt files")
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() == ".txt" and not file.name.startswith("."))
    if not sum(file.stat().st_size for file in files):
        raise DataError(
            f"data.path={path} has {len(files)} .txt files with 0 bytes of text",
            remedy="put the text into files named *.txt, in UTF-8, in the folder or in folders below it",
        )
    return files


def _is_folder(path: Path) -> bool:
    """Whether there is a folder at a path; raises OSError for a link that leads nowhere."""
    if path.is_symlink():
        path.stat()
    return path.is_dir()


def _existing(*candidates: Path) -> Path | None:
    return next((folder for folder in candidates if _is_folder(folder)), None)


def _class_names(split: Path) -> list[str]:
    return sorted(path.name for path in split.iterdir() if not path.name.startswith(".") and _is_folder(path))


def _check_classes(split: Path, classes: tuple[str, ...]) -> None:
    for name in _class_names(split):
        if name not in classes:
            raise DataError(
                f"class {split / name} is not in the training split",
                remedy="rename the folder to a class under train, or remove it",
            )
        if not any(_is_image(entry) for _, entry in _files_below(split / name)):
            raise DataError(
                f"class folder {split / name} has no images ({', '.join(IMAGE_SUFFIXES)})",
                remedy="add images, or remove the folder",
            )


def _is_image(entry: os.DirEntry[str]) -> bool:
    return not entry.name.startswith(".") and entry.name.lower().endswith(IMAGE_SUFFIXES)
