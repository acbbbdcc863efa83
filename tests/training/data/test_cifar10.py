"""CIFAR-10 from valid and damaged files in both published versions."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.data import cifar10_files
from training.config.schema import DataSettings
from training.data import cifar10
from training.data.files import CIFAR10_BINARY, CIFAR10_PYTHON, Cifar10Layout, locate_cifar10
from training.data.options import Cifar10Options
from training.data.types import DataBundle
from training.errors import DataError

pytestmark = pytest.mark.extended


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Both published folders; removed afterwards, because pytest would keep their 370 MB."""
    folder = tmp_path_factory.mktemp("cifar10")
    cifar10_files.write_both_versions(folder)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def bundle(root: Path) -> DataBundle:
    return _load(root / CIFAR10_PYTHON.folder)


def _load(path: Path, validation_fraction: float = 0.1) -> DataBundle:
    settings = DataSettings(dataset="cifar10", path=path, validation_fraction=validation_fraction)
    return cifar10.load_cifar10(settings, Cifar10Options())


def _load_error(path: Path) -> str:
    with pytest.raises(DataError) as raised:
        _load(path)
    return str(raised.value)


def test_the_test_split_is_the_published_one(bundle: DataBundle) -> None:
    pixels, labels = cifar10_files.generate_rows(5)
    inputs, classes = bundle.test.read(np.array([0, 1, 9_999]))
    mean = torch.tensor([0.4914, 0.4822, 0.4465])[:, None, None]
    std = torch.tensor([0.2470, 0.2435, 0.2616])[:, None, None]
    expected = (torch.from_numpy(pixels[[0, 1, 9_999]].reshape(3, 3, 32, 32)) / 255 - mean) / std
    torch.testing.assert_close(inputs, expected)
    assert classes.tolist() == [labels[0], labels[1], labels[9_999]]
    assert len(bundle.test) == 10_000


def test_validation_is_held_out_of_the_training_files_only(bundle: DataBundle) -> None:
    assert (len(bundle.train), len(bundle.validation)) == (45_000, 5_000)
    inputs, _ = bundle.validation.read(np.arange(5_000))
    first_pixels = (inputs[:, 0, 0, 0] * 0.2470 + 0.4914) * 255
    assert set(first_pixels.round().int().tolist()) == {0, 1, 2, 3, 4}


def test_only_training_images_are_augmented_with_a_margin_of_4(bundle: DataBundle) -> None:
    assert (bundle.train.draws, bundle.validation.draws, bundle.test.draws) == (3, 0, 0)
    shifted, _ = bundle.train.read(np.array([0]), np.array([[0.0, 0.0, 0.9]]))
    plain, _ = bundle.train.read(np.array([0]))
    assert torch.equal(shifted[..., 4:, 4:], plain[..., :-4, :-4])


def test_both_published_versions_are_the_same_dataset(root: Path, bundle: DataBundle) -> None:
    assert locate_cifar10(root) == (root / CIFAR10_PYTHON.folder, CIFAR10_PYTHON)
    binary = _load(root / CIFAR10_BINARY.folder)
    assert binary.fingerprint == bundle.fingerprint
    ids = np.array([44_999, 17])
    uniforms = np.array([[0.1, 0.9, 0.2], [0.6, 0.3, 0.8]])
    for python, from_binary in zip(bundle.train.read(ids, uniforms), binary.train.read(ids, uniforms), strict=True):
        assert torch.equal(python, from_binary)


def test_the_archive_is_read_without_extracting_it(root: Path, bundle: DataBundle, tmp_path: Path) -> None:
    archive = tmp_path / CIFAR10_BINARY.archive
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(root / CIFAR10_BINARY.folder, arcname=CIFAR10_BINARY.folder)
    assert _load(tmp_path).fingerprint == bundle.fingerprint
    assert list(tmp_path.iterdir()) == [archive]
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    assert f"cannot read archive {archive}" in _load_error(archive)


def test_an_unrelated_archive_and_a_path_without_the_files_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("nowhere", "empty"):
        message = _load_error(tmp_path / name)
        assert str(tmp_path / name) in message
        assert "kriz/cifar.html" in message
    (tmp_path / "readme.html").write_text("no batches")
    with tarfile.open(tmp_path / "some.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "readme.html", arcname="cifar-10-batches-py/readme.html")
    assert "does not contain data_batch_1, data_batch_2" in _load_error(tmp_path / "some.tar.gz")


@pytest.fixture
def with_file(root: Path, tmp_path: Path) -> Callable[[Cifar10Layout, str, bytes | None], str]:
    """What is said of a published version of which one file has other content, or is missing; `FILE` is its path."""

    def load(layout: Cifar10Layout, name: str, content: bytes | None) -> str:
        folder = tmp_path / f"copy-{len(list(tmp_path.iterdir()))}"
        cifar10_files.copy_except(root / layout.folder, folder, name=name, content=content)
        return _load_error(folder).replace(str(folder / name), "FILE")

    return load


def test_a_wrong_file_is_named(root: Path, with_file: Callable[[Cifar10Layout, str, bytes | None], str]) -> None:
    pixels, labels = cifar10_files.generate_rows(0)
    labels[123] = 10
    encoded = {
        CIFAR10_PYTHON: cifar10_files.encode_python(pixels, labels),
        CIFAR10_BINARY: cifar10_files.encode_binary(pixels, labels),
    }
    for layout, wrong in encoded.items():
        whole = (root / layout.folder / layout.files[4]).read_bytes()
        assert "FILE is missing" in with_file(layout, layout.files[2], None)
        assert "FILE is truncated" in with_file(layout, layout.files[4], whole[: len(whole) // 2])
        assert "FILE: row 123 has label 10, expected 0 <= label < 10" in with_file(layout, layout.files[0], wrong)
    test_batch = (root / CIFAR10_PYTHON.folder / "test_batch").read_bytes()
    assert "cannot unpickle FILE" in with_file(CIFAR10_PYTHON, "test_batch", test_batch[:-20_000])
    larger = (root / CIFAR10_BINARY.folder / "test_batch.bin").read_bytes() + b"\x00"
    said = with_file(CIFAR10_BINARY, "test_batch.bin", larger)
    assert "FILE has 30730001 bytes, expected 30730000" in said
    for rows, count, expected in (
        (10_001, 10_000, "has no uint8 array 'data'"),
        (10_000, 9_999, "has no list 'labels'"),
    ):
        content = cifar10_files.encode_python(np.zeros((rows, 3072), dtype=np.uint8), [0] * count)
        assert f"FILE {expected}" in with_file(CIFAR10_PYTHON, "data_batch_1", content)


def test_a_pickle_that_calls_a_function_is_rejected_without_calling_it(
    tmp_path: Path, with_file: Callable[[Cifar10Layout, str, bytes | None], str]
) -> None:
    evidence = tmp_path / "called"
    malicious = b"cos\nsystem\n(S'touch %s'\ntR." % str(evidence).encode()
    said = with_file(CIFAR10_PYTHON, "data_batch_1", malicious + bytes(CIFAR10_PYTHON.min_bytes))
    assert "os.system is not allowed in a pickled array" in said
    assert not evidence.exists()
