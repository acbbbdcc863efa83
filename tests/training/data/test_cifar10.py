"""CIFAR-10 from valid and damaged files in both published versions."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
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


def test_an_unrelated_archive_is_rejected_with_the_missing_files(tmp_path: Path) -> None:
    (tmp_path / "readme.html").write_text("no batches")
    with tarfile.open(tmp_path / "some.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "readme.html", arcname="cifar-10-batches-py/readme.html")
    assert "does not contain data_batch_1, data_batch_2" in _load_error(tmp_path / "some.tar.gz")


def test_the_folder_is_located_from_its_parent(root: Path) -> None:
    assert locate_cifar10(root) == (root / CIFAR10_PYTHON.folder, CIFAR10_PYTHON)


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_path_without_the_files_is_rejected_with_the_download_page(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    message = _load_error(tmp_path / name)
    assert str(tmp_path / name) in message
    assert "kriz/cifar.html" in message


@pytest.mark.parametrize("layout", [CIFAR10_PYTHON, CIFAR10_BINARY], ids=["python", "binary"])
def test_a_missing_file_is_named(root: Path, tmp_path: Path, layout: Cifar10Layout) -> None:
    name = layout.files[2]
    folder = cifar10_files.copy_except(root / layout.folder, tmp_path / "copy", name=name, content=None)
    assert f"{folder / name} is missing" in _load_error(folder)


@pytest.mark.parametrize("layout", [CIFAR10_PYTHON, CIFAR10_BINARY], ids=["python", "binary"])
def test_a_truncated_file_is_named(root: Path, tmp_path: Path, layout: Cifar10Layout) -> None:
    name = layout.files[4]
    whole = (root / layout.folder / name).read_bytes()
    folder = cifar10_files.copy_except(
        root / layout.folder, tmp_path / "copy", name=name, content=whole[: len(whole) // 2]
    )
    assert f"{folder / name} is truncated" in _load_error(folder)


def test_a_pickle_truncated_after_its_pixels_is_named(root: Path, tmp_path: Path) -> None:
    source = root / CIFAR10_PYTHON.folder
    content = (source / "test_batch").read_bytes()[:-20_000]
    folder = cifar10_files.copy_except(source, tmp_path / "copy", name="test_batch", content=content)
    assert f"cannot unpickle {folder / 'test_batch'}" in _load_error(folder)


def test_an_oversized_binary_file_is_rejected_with_both_sizes(root: Path, tmp_path: Path) -> None:
    source = root / CIFAR10_BINARY.folder
    content = (source / "test_batch.bin").read_bytes() + b"\x00"
    folder = cifar10_files.copy_except(source, tmp_path / "copy", name="test_batch.bin", content=content)
    assert "test_batch.bin has 30730001 bytes, expected 30730000" in _load_error(folder)


@pytest.mark.parametrize("layout", [CIFAR10_PYTHON, CIFAR10_BINARY], ids=["python", "binary"])
def test_an_invalid_label_is_rejected_with_file_and_row(root: Path, tmp_path: Path, layout: Cifar10Layout) -> None:
    pixels, labels = cifar10_files.generate_rows(0)
    labels[123] = 10
    write = cifar10_files.encode_python if layout is CIFAR10_PYTHON else cifar10_files.encode_binary
    folder = cifar10_files.copy_except(
        root / layout.folder, tmp_path / "copy", name=layout.files[0], content=write(pixels, labels)
    )
    assert f"{folder / layout.files[0]}: row 123 has label 10, expected 0 <= label < 10" in _load_error(folder)


@pytest.mark.parametrize(
    ("rows", "labels", "expected"),
    [(10_001, 10_000, "has no uint8 array 'data'"), (10_000, 9_999, "has no list 'labels'")],
)
def test_a_batch_of_the_wrong_size_is_rejected(
    root: Path, tmp_path: Path, rows: int, labels: int, expected: str
) -> None:
    content = cifar10_files.encode_python(np.zeros((rows, 3072), dtype=np.uint8), [0] * labels)
    folder = cifar10_files.copy_except(
        root / CIFAR10_PYTHON.folder, tmp_path / "copy", name="data_batch_1", content=content
    )
    assert f"{folder / 'data_batch_1'} {expected}" in _load_error(folder)


def test_a_pickle_that_calls_a_function_is_rejected_without_calling_it(root: Path, tmp_path: Path) -> None:
    evidence = tmp_path / "called"
    malicious = b"cos\nsystem\n(S'touch %s'\ntR." % str(evidence).encode()
    padded = malicious + bytes(CIFAR10_PYTHON.min_bytes)
    folder = cifar10_files.copy_except(
        root / CIFAR10_PYTHON.folder, tmp_path / "copy", name="data_batch_1", content=padded
    )
    assert "os.system is not allowed in a pickled array" in _load_error(folder)
    assert not evidence.exists()
