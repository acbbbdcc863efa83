"""Where the files of a dataset lie, and whether they can be what they should be, without opening one.

Light: preflight calls it before anything is started, and the datasets call it again where they read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from training.errors import DataError

_CIFAR10_REMEDY = (
    "set data.path to the published archive cifar-10-python.tar.gz or cifar-10-binary.tar.gz "
    "(https://www.cs.toronto.edu/~kriz/cifar.html), or to the folder it was extracted in"
)

CIFAR10_ROWS = 10_000
"""Images in each of the six files of CIFAR-10."""

CIFAR10_PIXELS = 3 * 32 * 32
"""Bytes of one image of CIFAR-10: its red, green and blue plane, each row by row."""


@dataclass(frozen=True, kw_only=True)
class Cifar10Layout:
    """One of the two forms that CIFAR-10 is published in.

    Attributes:
        folder: folder within the archive.
        archive: name of the archive.
        files: the five training files in order, then the test file.
        least_bytes: a file that is smaller has been truncated.
    """

    folder: str
    archive: str
    files: tuple[str, ...]
    least_bytes: int


CIFAR10_PYTHON = Cifar10Layout(
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    files=(*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"),
    least_bytes=CIFAR10_ROWS * CIFAR10_PIXELS,
)
CIFAR10_BINARY = Cifar10Layout(
    folder="cifar-10-batches-bin",
    archive="cifar-10-binary.tar.gz",
    files=(*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"),
    least_bytes=CIFAR10_ROWS * (1 + CIFAR10_PIXELS),
)
CIFAR10_LAYOUTS = (CIFAR10_PYTHON, CIFAR10_BINARY)


def find_cifar10(path: Path) -> tuple[Path, Cifar10Layout | None]:
    """Finds CIFAR-10 at a path.

    Args:
        path: the folder with the six files, the archive, or the folder that either lies in.

    Returns:
        The folder with the six files, all there and none too small, and its layout; or an archive, whose layout only
        its content shows, and None.

    Raises:
        DataError: there is neither, or a file is missing or too small.
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
    raise DataError(f"data.path={path} holds none of the files of CIFAR-10", remedy=_CIFAR10_REMEDY)


def check_cifar10(path: Path) -> None:
    """Raises the `DataError` of `find_cifar10`, if any."""
    find_cifar10(path)


def _check_sizes(folder: Path, layout: Cifar10Layout) -> None:
    for name in layout.files:
        file = folder / name
        if not file.is_file():
            raise DataError(f"{file} is missing", remedy=f"extract {layout.archive} again")
        if (size := file.stat().st_size) < layout.least_bytes:
            raise DataError(
                f"{file} is truncated: {size} bytes, at least {layout.least_bytes} belong there",
                remedy=f"extract {layout.archive} again",
            )


IMAGE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""Names that end otherwise, in whatever case, are not taken for images."""

_FOLDER_REMEDY = (
    "lay the images out as PATH/train/CLASS/*.jpg, PATH/val/CLASS/*.jpg and, if there is one, PATH/test/CLASS/*.jpg"
)


@dataclass(frozen=True, kw_only=True)
class ImageFolders:
    """The folders of an image dataset in ImageNet's layout.

    Attributes:
        train: folder with one folder per class.
        validation: the same for validation, if there is one.
        test: the same for testing, if there is one.
        classes: names of the class folders under `train`, sorted; a class's label is its place.
    """

    train: Path
    validation: Path | None
    test: Path | None
    classes: tuple[str, ...]

    @property
    def splits(self) -> tuple[Path, ...]:
        """The split folders that exist."""
        return tuple(folder for folder in (self.train, self.validation, self.test) if folder)


def find_image_folders(path: Path) -> ImageFolders:
    """Finds the split and class folders at a path.

    Raises:
        DataError: a folder is missing, a class has no image, there are fewer than two classes, or a class is in the
            validation or test split only.
    """
    if not path.is_dir():
        raise DataError(f"data.path={path} is not a folder", remedy=_FOLDER_REMEDY)
    if not (path / "train").is_dir():
        raise DataError(f"data.path={path} has no folder named train", remedy=_FOLDER_REMEDY)
    folders = ImageFolders(
        train=path / "train",
        validation=_existing(path / "val", path / "validation"),
        test=_existing(path / "test"),
        classes=tuple(_class_names(path / "train")),
    )
    if len(folders.classes) < 2:
        raise DataError(
            f"{folders.train} has {len(folders.classes)} class folder(s), at least 2 are needed", remedy=_FOLDER_REMEDY
        )
    for split in folders.splits:
        _check_classes(split, folders.classes)
    return folders


def check_image_folders(path: Path) -> None:
    """Raises the `DataError` of `find_image_folders`, if any."""
    find_image_folders(path)


def list_images(split: Path, class_name: str) -> Iterator[tuple[str, int]]:
    """Yields the name and the size in bytes of each image of a class, sorted by name.

    Raises:
        DataError: an image file is empty.
    """
    with os.scandir(split / class_name) as entries:
        images = sorted((entry for entry in entries if _is_image(entry)), key=lambda entry: entry.name)
    for entry in images:
        size = entry.stat().st_size
        if size == 0:
            raise DataError(f"image {entry.path} is empty (0 bytes)", remedy="replace it by a sound copy, or delete it")
        yield entry.name, size


def _existing(*candidates: Path) -> Path | None:
    return next((folder for folder in candidates if folder.is_dir()), None)


def _class_names(split: Path) -> list[str]:
    with os.scandir(split) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def _check_classes(split: Path, classes: tuple[str, ...]) -> None:
    for name in _class_names(split):
        if name not in classes:
            raise DataError(
                f"{split / name} is a class that the training split does not have",
                remedy="give the folder the name of a class under train, or remove it",
            )
        with os.scandir(split / name) as entries:
            if not any(_is_image(entry) for entry in entries):
                raise DataError(
                    f"class folder {split / name} has no image ({', '.join(IMAGE_SUFFIXES)})",
                    remedy="put images into it, or remove the folder",
                )


def _is_image(entry: os.DirEntry[str]) -> bool:
    return not entry.name.startswith(".") and entry.name.lower().endswith(IMAGE_SUFFIXES)
