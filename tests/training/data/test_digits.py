"""Images in memory: the digits that ship with scikit-learn, crops, mirroring and normalisation."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import datasets

from training.config.schema import DataSettings
from training.data.digits import load_digits, read_table
from training.data.loader import EvalLoader
from training.data.options import DigitsOptions
from training.data.pixels import PadAndCrop, PixelSplit
from training.data.types import DataBundle


def _load(validation_fraction: float = 0.1, shift: int = 1) -> DataBundle:
    return load_digits(DataSettings(validation_fraction=validation_fraction), DigitsOptions(shift=shift))


def test_the_table_equals_the_one_from_scikit_learn() -> None:
    """The loader reads the file without importing scikit-learn. This fails if a release moves the file."""
    published = datasets.load_digits()
    images, labels = read_table()
    np.testing.assert_array_equal(images[:, 0], published.images)
    np.testing.assert_array_equal(labels, published.target)


def test_the_splits_partition_the_images_and_are_balanced() -> None:
    bundle = _load()
    splits = (bundle.train, bundle.validation, bundle.test)
    assert [len(split) for split in splits] == [1293, 145, 359]
    pixels = torch.cat([split.read(np.arange(len(split)))[0] for split in splits]).flatten(1)
    assert len(torch.unique(pixels, dim=0)) == len(np.unique(datasets.load_digits().data, axis=0)) == 1797
    for split in splits:
        shares = split.read(np.arange(len(split)))[1].bincount(minlength=10) / len(split)
        assert 0.085 < shares.min() < shares.max() < 0.115


def test_inputs_have_zero_mean_and_unit_variance() -> None:
    bundle = _load()
    (batch,) = EvalLoader(bundle.train, batch=2000, rank=0, world=1)
    assert batch.inputs.shape == (1293, *bundle.spec.shape)
    assert abs(batch.inputs.mean()) < 0.02
    assert abs(batch.inputs.std() - 1) < 0.02


def test_only_training_images_are_shifted_by_at_most_the_option() -> None:
    bundle = _load(shift=2)
    assert (bundle.train.draws, bundle.validation.draws, bundle.test.draws) == (2, 0, 0)
    shifted, _ = bundle.train.read(np.array([0]), np.array([[0.0, 0.0]]))
    plain, _ = bundle.train.read(np.array([0]))
    assert torch.equal(shifted[..., 2:, 2:], plain[..., :-2, :-2])


def test_only_the_fingerprint_and_the_validation_split_depend_on_its_fraction() -> None:
    first, second = _load(0.1), _load(0.3)
    assert torch.equal(first.test.read(np.arange(359))[0], second.test.read(np.arange(359))[0])
    assert len(second.validation) > len(first.validation)
    assert first.fingerprint == _load(0.1, shift=2).fingerprint != second.fingerprint


BELOW_ONE = float(np.nextafter(1.0, 0.0))


def _images(count: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randint(1, 256, (count, 3, 6, 5), dtype=torch.uint8, generator=generator)


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
