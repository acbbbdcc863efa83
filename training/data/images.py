"""Encoded images to samples: decoded, turned upright, cropped, scaled and mirrored in 8 bits, then normalised.

A single resize of a box of the decoded image crops and scales it, in training and in evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import IO, Final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import ExifTags, Image
from PIL import TiffImagePlugin as TiffTags
from PIL.TiffImagePlugin import TiffImageFile
from torch import Tensor

from training.data.options import Orientation
from training.errors import DataError

DRAWS = 5
"""Uniforms that the augmentation of an image needs: area, aspect ratio, horizontal and vertical position, mirror."""

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

_TURNS: Final[Mapping[object, Image.Transpose]] = MappingProxyType(
    {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }
)
"""What makes an image upright, by its EXIF orientation (CIPA DC-008, table 6). 1 is upright; others have no meaning."""

_Box = tuple[float, float, float, float]


@dataclass(frozen=True, kw_only=True)
class ImageDecoder:
    """How a sample is made of an encoded image.

    Attributes:
        side: height and width of a sample.
        orientation: exif turns an image upright as its EXIF data say, like every viewer; stored leaves it as its pixels are stored.
    """

    side: int
    orientation: Orientation

    def decode(self, source: str | IO[bytes], *, uniforms: NDArray[np.float64] | None, name: str) -> NDArray[np.uint8]:
        """The pixels of a sample, shape (side, side, 3).

        Args:
            source: path of the file, or its content.
            uniforms: the augmentation, shape (DRAWS,); None takes the centre.
            name: what the error calls the image.

        Raises:
            DataError: the image cannot be decoded.
        """
        try:
            with Image.open(source) as image:
                decoded = self._upright(_to_rgb(image), image)
        except Exception as error:  # Pillow may raise anything on a damaged file
            raise DataError(f"cannot decode image {name}: {error}", remedy="replace or delete the file") from error
        box = centre_box(decoded.size) if uniforms is None else random_box(decoded.size, uniforms)
        pixels = np.asarray(decoded.resize((self.side, self.side), Image.Resampling.BILINEAR, box=box))
        is_mirrored = uniforms is not None and uniforms[4] < 0.5
        return pixels[:, ::-1] if is_mirrored else pixels

    def samples(
        self,
        images: Iterable[tuple[int, str | IO[bytes], str]],
        *,
        uniforms: NDArray[np.float64] | None,
        count: int,
    ) -> Tensor:
        """The samples of images, float32 of shape (count, 3, side, side).

        Args:
            images: position of each of the `count` samples, in any order; path or content of its file; what an error calls it.
            uniforms: the augmentation of each sample, shape (count, DRAWS); None takes the centre.
            count: number of samples.

        Raises:
            DataError: an image cannot be decoded.
        """
        pixels = np.empty((count, self.side, self.side, 3), dtype=np.uint8)
        for position, source, name in images:
            augmentation = None if uniforms is None else uniforms[position]
            pixels[position] = self.decode(source, uniforms=augmentation, name=name)
        return normalised(pixels)

    def _upright(self, decoded: Image.Image, image: Image.Image) -> Image.Image:
        """The decoded image, turned and mirrored as the EXIF data of its file say; damaged ones say nothing, as in viewers."""
        turn = None
        if self.orientation == "exif":
            with suppress(Exception):
                turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation))
        return decoded if turn is None else decoded.transpose(turn)


def normalised(pixels: NDArray[np.uint8]) -> Tensor:
    """Returns float32 of shape (n, 3, side, side) from pixels of shape (n, side, side, 3)."""
    planes = torch.from_numpy(pixels).permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)
    return planes.sub_(_MEAN).div_(_STD)


def _to_rgb(image: Image.Image) -> Image.Image:
    """Converts to 8 bits per channel, without transparency. Pillow alone would clip wider samples to 255, not scale them.

    Raises:
        ValueError: the samples are signed, or 32 bits wide, as integers or floats: nothing says what is white.
    """
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):  # PGM has 16 bits at most
        bits, is_inverted = _tiff_samples(image) if isinstance(image, TiffImageFile) else (16, False)
        grey = (np.asarray(image) >> (bits - 8)).astype(np.uint8)
        return Image.fromarray(~grey if is_inverted else grey).convert("RGB")
    if image.mode in {"I", "F"}:
        raise ValueError(
            f"its samples (mode {image.mode}) have no known range; convert it to 8 bits, or 16 without a sign"
        )
    return image.convert("RGB")


def _tiff_samples(image: TiffImageFile) -> tuple[int, bool]:
    """The bits of a grey sample, and whether 0 is white: Pillow 13.0 leaves both to the caller where they are more than 8 (TIFF 6.0)."""
    tags = image.tag_v2
    return tags.get(TiffTags.BITSPERSAMPLE, (16,))[0], tags.get(TiffTags.PHOTOMETRIC_INTERPRETATION) == 0


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
