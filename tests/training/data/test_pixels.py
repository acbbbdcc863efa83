"""Images in memory: crops, mirroring and normalisation."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from training.data.pixels import PadAndCrop, PixelSplit

BELOW_ONE = float(np.nextafter(1.0, 0.0))


def _images(count: int, *, channels: int = 3, height: int = 6, width: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randint(1, 256, (count, channels, height, width), dtype=torch.uint8, generator=generator)


@given(
    margin=st.integers(0, 8), mirrors=st.booleans(), draws=st.lists(st.floats(0, BELOW_ONE), min_size=12, max_size=12)
)
def test_augmentation_pads_slices_and_mirrors_each_image(*, margin: int, mirrors: bool, draws: list[float]) -> None:
    augmentation = PadAndCrop(margin=margin, mirrors=mirrors)
    uniforms = np.array(draws).reshape(4, 3)[:, : augmentation.draws]
    images = _images(4)
    augmented = augmentation(images, uniforms)
    for image, drawn, result in zip(images.numpy(), uniforms, augmented.numpy(), strict=True):
        padded = np.pad(image, ((0, 0), (margin, margin), (margin, margin)))
        top, left = int(drawn[0] * (2 * margin + 1)), int(drawn[1] * (2 * margin + 1))
        expected = padded[:, top : top + 6, left : left + 5]
        assert top <= 2 * margin >= left
        if mirrors and drawn[2] < 0.5:
            expected = expected[:, :, ::-1]
        np.testing.assert_array_equal(result, expected)


def test_inputs_are_normalised_per_channel() -> None:
    images, rows = _images(5), np.array([4, 2, 0])
    mean, std = (1.0, 2.0, 3.0), (10.0, 20.0, 30.0)
    split = PixelSplit(pixels=images, labels=torch.arange(5), rows=rows, mean=mean, std=std)
    inputs, labels = split.read(np.array([2, 0, 0]))
    expected = (images[[0, 4, 4]].double() - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    torch.testing.assert_close(inputs, expected.float())
    assert inputs.dtype == torch.float32
    assert labels.tolist() == [0, 4, 4]


def test_a_read_without_uniforms_does_not_augment_and_one_with_them_keeps_the_images() -> None:
    images = _images(4)
    before, rows = images.clone(), np.arange(4)
    splits = [
        PixelSplit(pixels=images, labels=torch.arange(4), rows=rows, mean=[0] * 3, std=[1] * 3, augmentation=applied)
        for applied in (None, PadAndCrop(margin=2, mirrors=True))
    ]
    assert [split.draws for split in splits] == [0, 3]
    splits[1].read(rows, np.zeros((4, 3)))
    plain, augmentable = (split.read(rows)[0] for split in splits)
    assert torch.equal(plain, augmentable)
    assert torch.equal(images, before)
