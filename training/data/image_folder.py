"""`image_folder`: images in ImageNet's layout, one folder per class, decoded when they are read."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.config.schema import DataSettings
from training.data.classes import classes_file
from training.data.contents import content_arrays
from training.data.files import ImageFolders, list_images, locate_image_folders
from training.data.fingerprint import fingerprint, image_fingerprints
from training.data.holdout import hold_out
from training.data.images import DRAWS, ImageDecoder
from training.data.listing import FileListing
from training.data.options import ImageFolderOptions
from training.data.types import DataBundle, SampleSpec

_FEW = 5


class ImageFolderSplit:
    """A `Split` over image files."""

    def __init__(
        self,
        *,
        root: Path,
        names: NDArray[np.bytes_],
        labels: NDArray[np.int64],
        decoder: ImageDecoder,
        augments: bool = False,
    ) -> None:
        """Stores the file list; reads no image.

        Args:
            root: folder of the split.
            names: CLASS/FILE of each image, shape (n,). An array of bytes, because loader workers share its memory with
                the rank; reference counting would copy the pages of a list.
            labels: class of each image, shape (n,).
            decoder: makes the samples.
            augments: random crop and mirror when `read` gets uniforms.
        """
        self._root = os.fsencode(root)
        self._names = names
        self._labels = labels
        self._decoder = decoder
        self.draws = DRAWS if augments else 0

    def __len__(self) -> int:
        """Number of images."""
        return len(self._names)

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        """Decodes the images with these ids; see `Split.read`."""
        files = (os.fsdecode(os.path.join(self._root, self._names[sample])) for sample in ids)  # noqa: PTH118 - bytes
        images = ((row, file, file) for row, file in enumerate(files))
        inputs = self._decoder.samples(images, uniforms=uniforms, count=len(ids))
        return inputs, torch.from_numpy(self._labels[ids])


def load_image_folder(settings: DataSettings, options: ImageFolderOptions) -> DataBundle:
    """Loads the images under PATH/train, PATH/val (or PATH/validation) and PATH/test.

    Without a validation folder, `validation_fraction` of each class of train is held out. Without a test folder, the
    validation split also serves as test split, as is usual for ImageNet, whose test labels are not public.

    Raises:
        DataError: a folder or class is missing or empty; `read` raises it for an image that cannot be decoded.
    """
    folders = locate_image_folders(settings.folder)
    left_out = Counter[str]()
    listings = {folder: _list_split(folder, folders.classes, left_out) for folder in folders.splits}
    beside = _left_beside(settings.folder, folders)

    decoder = ImageDecoder(side=options.image_size, orientation=options.orientation)

    def split(folder: Path, rows: NDArray[np.int64] | slice, *, augments: bool = False) -> ImageFolderSplit:
        names, labels, _ = listings[folder]
        return ImageFolderSplit(root=folder, names=names[rows], labels=labels[rows], decoder=decoder, augments=augments)

    if folders.validation is not None:
        train = split(folders.train, slice(None), augments=True)
        validation = split(folders.validation, slice(None))
    else:
        kept, held_out = hold_out(listings[folders.train][1], settings.validation_fraction)
        train, validation = split(folders.train, kept, augments=True), split(folders.train, held_out)
    names, sizes = _files(listings)
    contents = content_arrays(settings, names)
    stored = fingerprint(
        {
            "dataset": "image_folder",
            "classes": list(folders.classes),
            "image_size": options.image_size,
            "validation": None if folders.validation else settings.validation_fraction,
        },
        {
            **{
                f"{folder.name}/{column}": array
                for folder, (names, _, sizes) in listings.items()
                for column, array in (("names", names), ("sizes", sizes))
            },
            **contents,
        },
    )
    identity, earlier = image_fingerprints(stored, options.orientation)
    return DataBundle(
        name="image_folder",
        spec=SampleSpec(shape=(3, options.image_size, options.image_size), outputs=len(folders.classes)),
        train=train,
        validation=validation,
        test=split(folders.test, slice(None)) if folders.test else validation,
        fingerprint=identity,
        files=classes_file(folders.classes, count=len(folders.classes)),
        notes=(*_notes(left_out), *beside),
        listing=FileListing.of(names, contents, sizes),
        earlier=earlier,
    )


def _files(
    listings: Mapping[Path, tuple[NDArray[np.bytes_], NDArray[np.int64], NDArray[np.int64]]],
) -> tuple[list[bytes], NDArray[np.int64]]:
    """The files of all splits, each with its path below the dataset's folder, and their sizes."""
    names = [
        os.fsencode(folder.name) + b"/" + name for folder, (found, _, _) in listings.items() for name in found.tolist()
    ]
    return names, np.concatenate([sizes for _, _, sizes in listings.values()])


def _left_beside(root: Path, folders: ImageFolders) -> Iterator[str]:
    """A line about folders that are no split, and about files of a split that are in no folder of a class."""
    others = sorted(
        one.name
        for one in root.iterdir()
        if one.is_dir() and one not in folders.splits and not one.name.startswith(".")
    )
    if others:
        yield f"left out, because they are no split: the folders {', '.join(others[:_FEW])}{', …' if len(others) > _FEW else ''}"
    for split in folders.splits:
        if count := sum(one.is_file() and not one.name.startswith(".") for one in split.iterdir()):
            yield f"left out, because they are in no folder of a class: {count:,} files in {split.name}"


def _notes(left_out: Counter[str]) -> tuple[str, ...]:
    """A line about the files that are no images, if there are any."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in left_out.most_common())
    return (f"left out, because they are no images: {kinds}",) if kinds else ()


def _list_split(
    folder: Path, classes: Sequence[str], left_out: Counter[str]
) -> tuple[NDArray[np.bytes_], NDArray[np.int64], NDArray[np.int64]]:
    """Returns the name, label and size in bytes of each image of a split."""
    names: list[bytes] = []
    labels: list[int] = []
    sizes: list[int] = []
    for label, class_name in enumerate(classes):
        if not (folder / class_name).is_dir():  # a small validation split need not have every class
            continue
        for file, size in list_images(folder / class_name, left_out):
            names.append(os.fsencode(f"{class_name}/{file}"))
            labels.append(label)
            sizes.append(size)
    return np.array(names, dtype=np.bytes_), np.array(labels, dtype=np.int64), np.array(sizes, dtype=np.int64)
