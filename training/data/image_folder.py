"""`image_folder`: images in ImageNet's layout, one folder per class, decoded when they are read.

A single resize of a box of the decoded image crops and scales it, in training and in evaluation.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from training.config.schema import DataSettings
from training.data.files import list_images, locate_image_folders
from training.data.fingerprint import fingerprint
from training.data.holdout import hold_out
from training.data.options import ImageFolderOptions
from training.data.types import DataBundle, SampleSpec
from training.errors import DataError

_MEAN = 255 * torch.tensor((0.485, 0.456, 0.406))[:, None, None]
"""Mean of each channel over ImageNet, in bytes (torchvision's documentation of its pretrained models)."""

_STD = 255 * torch.tensor((0.229, 0.224, 0.225))[:, None, None]
"""Standard deviation of each channel over ImageNet, in bytes (same source)."""

_CENTRE = 224 / 256
"""Side of the evaluation crop as a fraction of the image's short side: "resize to 256, centre-crop 224"."""

_AREA = (0.08, 1.0)
"""Range of a training crop's area as a fraction of the image (Szegedy et al., arXiv:1409.4842, section 6)."""

_ASPECT = (3 / 4, 4 / 3)
"""Range of a training crop's aspect ratio, width / height (same source)."""

_Box = tuple[float, float, float, float]


class ImageFolderSplit:
    """A `Split` over image files."""

    def __init__(
        self, *, root: Path, names: NDArray[np.bytes_], labels: NDArray[np.int64], side: int, augments: bool = False
    ) -> None:
        """Stores the file list; reads no image.

        Args:
            root: folder of the split.
            names: CLASS/FILE of each image, shape (n,). An array of bytes, because loader workers share its memory with
                the rank; reference counting would copy the pages of a list.
            labels: class of each image, shape (n,).
            side: height and width of a sample.
            augments: random crop and mirror when `read` gets uniforms.
        """
        self._root = os.fsencode(root)
        self._names = names
        self._labels = labels
        self._side = side
        self.draws = 5 if augments else 0

    def __len__(self) -> int:
        """Number of images."""
        return len(self._names)

    def read(self, ids: NDArray[np.int64], uniforms: NDArray[np.float64] | None = None) -> tuple[Tensor, Tensor]:
        """Decodes the images with these ids; see `Split.read`."""
        pixels = np.empty((len(ids), self._side, self._side, 3), dtype=np.uint8)
        for row, sample in enumerate(ids):
            pixels[row] = self._decode(
                os.path.join(self._root, self._names[sample]),  # noqa: PTH118 - bytes
                None if uniforms is None else uniforms[row],
            )
        planes = torch.from_numpy(pixels).permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
        return planes.sub_(_MEAN).div_(_STD), torch.from_numpy(self._labels[ids])

    def _decode(self, file: bytes, uniforms: NDArray[np.float64] | None) -> NDArray[np.uint8]:
        try:
            with Image.open(file) as image:
                decoded = _to_rgb(image)
        except Exception as error:  # Pillow may raise anything on a damaged file
            raise DataError(
                f"cannot decode image {os.fsdecode(file)}: {error}", remedy="replace or delete the file"
            ) from error
        box = centre_box(decoded.size) if uniforms is None else random_box(decoded.size, uniforms)
        pixels = np.asarray(decoded.resize((self._side, self._side), Image.Resampling.BILINEAR, box=box))
        is_mirrored = uniforms is not None and uniforms[4] < 0.5
        return pixels[:, ::-1] if is_mirrored else pixels


def _to_rgb(image: Image.Image) -> Image.Image:
    """Converts to 8 bits per channel, without transparency. Pillow alone would clip wider samples to 255, not scale them.

    Raises:
        ValueError: the samples are 32 bits wide, as integers or floats, of which nothing says what is white.
    """
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in {"I", "F"}:
        raise ValueError(f"its samples have 32 bits (mode {image.mode}) and no known range; convert it to 8 or 16 bits")
    return image.convert("RGB")


def centre_box(size: tuple[int, int]) -> _Box:
    """Returns (left, upper, right, lower) of the evaluation crop of an image of size (width, height)."""
    width, height = size
    side = min(width, height) * _CENTRE
    left, upper = (width - side) / 2, (height - side) / 2
    return left, upper, left + side, upper + side


def random_box(size: tuple[int, int], uniforms: NDArray[np.float64]) -> _Box:
    """Returns (left, upper, right, lower) of a random training crop.

    A crop that exceeds the image is clipped. The usual recipe draws again instead, so that its number of draws depends
    on the image.

    Args:
        size: width and height of the image.
        uniforms: area, aspect ratio, horizontal and vertical position, shape (4,) or longer.
    """
    width, height = size
    area = width * height * (_AREA[0] + uniforms[0] * (_AREA[1] - _AREA[0]))
    aspect = _ASPECT[0] * (_ASPECT[1] / _ASPECT[0]) ** uniforms[1]
    crop_width, crop_height = min(width, math.sqrt(area * aspect)), min(height, math.sqrt(area / aspect))
    left, upper = uniforms[2] * (width - crop_width), uniforms[3] * (height - crop_height)
    return left, upper, min(width, left + crop_width), min(height, upper + crop_height)


def load_image_folder(settings: DataSettings, options: ImageFolderOptions) -> DataBundle:
    """Loads the images under PATH/train, PATH/val (or PATH/validation) and PATH/test.

    Without a validation folder, `validation_fraction` of each class of train is held out. Without a test folder, the
    validation split also serves as test split, as is usual for ImageNet, whose test labels are not public.

    Raises:
        DataError: a folder or class is missing or empty; `read` raises it for an image that cannot be decoded.
    """
    folders = locate_image_folders(settings.folder)
    listings = {folder: _list_split(folder, folders.classes) for folder in folders.splits}

    def split(folder: Path, rows: NDArray[np.int64] | slice, *, augments: bool = False) -> ImageFolderSplit:
        names, labels, _ = listings[folder]
        return ImageFolderSplit(
            root=folder, names=names[rows], labels=labels[rows], side=options.image_size, augments=augments
        )

    if folders.validation is not None:
        train = split(folders.train, slice(None), augments=True)
        validation = split(folders.validation, slice(None))
    else:
        kept, held_out = hold_out(listings[folders.train][1], settings.validation_fraction)
        train, validation = split(folders.train, kept, augments=True), split(folders.train, held_out)
    return DataBundle(
        name="image_folder",
        spec=SampleSpec(shape=(3, options.image_size, options.image_size), outputs=len(folders.classes)),
        train=train,
        validation=validation,
        test=split(folders.test, slice(None)) if folders.test else validation,
        fingerprint=fingerprint(
            {
                "dataset": "image_folder",
                "classes": list(folders.classes),
                "image_size": options.image_size,
                "validation": None if folders.validation else settings.validation_fraction,
            },
            {
                f"{folder.name}/{column}": array
                for folder, (names, _, sizes) in listings.items()
                for column, array in (("names", names), ("sizes", sizes))
            },
        ),
    )


def _list_split(
    folder: Path, classes: Sequence[str]
) -> tuple[NDArray[np.bytes_], NDArray[np.int64], NDArray[np.int64]]:
    """Returns the name, label and size in bytes of each image of a split."""
    names: list[bytes] = []
    labels: list[int] = []
    sizes: list[int] = []
    for label, class_name in enumerate(classes):
        if not (folder / class_name).is_dir():  # a small validation split need not have every class
            continue
        for file, size in list_images(folder, class_name):
            names.append(os.fsencode(f"{class_name}/{file}"))
            labels.append(label)
            sizes.append(size)
    return np.array(names, dtype=np.bytes_), np.array(labels, dtype=np.int64), np.array(sizes, dtype=np.int64)
