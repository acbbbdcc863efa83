"""`make data`: what it says of datasets, valid and damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from training.cli import main
from training.errors import ExitStatus
from training.inspection.rates import loader_processes


def answer(capsys: pytest.CaptureFixture[str], out: Path, *arguments: str) -> tuple[int, str, str]:
    """Runs the command; returns its status, what it found, and what it said meanwhile."""
    status = main(["data", *arguments, "--out", str(out)])
    said = capsys.readouterr()
    return status, said.out, said.err


def write_images(folder: Path) -> Path:
    """Twelve images in each of two classes, and four of validation."""
    generator = np.random.default_rng(0)
    for split, count in (("train", 12), ("val", 4)):
        for label in ("cat", "dog"):
            (folder / split / label).mkdir(parents=True)
            for number in range(count):
                pixels = generator.integers(0, 255, size=(16, 16, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / split / label / f"{number:02}.png")
    return folder


def images(folder: Path) -> list[str]:
    return ["--dataset", "image_folder", "--data-path", str(folder), "--set", "data.options.image_size=16"]


def test_a_dataset_is_described_drawn_and_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder, sheet = write_images(tmp_path / "images"), tmp_path / "new" / "sheet.png"
    status, found, said = answer(capsys, sheet, *images(folder), "--rate", "1e6", "--gpus", "4")
    assert status == ExitStatus.DONE
    lines = {line[:12].strip(): line[13:] for line in found.splitlines() if line[:12].strip()}
    assert lines["dataset"] == "image_folder"
    assert len(lines["fingerprint"]) == 64
    assert lines["input"] == "float32 (3, 16, 16)"
    assert lines["output"] == "(2,), one for each sample"
    assert lines["train"] == "24 samples, targets int64 ()"
    assert lines["validation"] == "8 samples, targets int64 ()"
    assert lines["test"] == "the validation split"
    assert "samples of each class: 0: 12, 1: 12" in found
    assert "train: read 24 of 24 samples, " in said
    with Image.open(sheet) as picture:
        assert min(picture.size) > 300
    speed = float(lines["reading"].split()[0].replace(",", ""))
    processes = int(lines["loader"].removeprefix("data.loader_workers=").split(":")[0])
    assert processes == pytest.approx(1e6 / speed, rel=0.01, abs=1), "printed without decimals"
    assert f"{4 * processes} cores" in lines["loader"]


def test_every_damaged_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images")
    for name in ("train/cat/03.png", "train/dog/11.png", "val/cat/00.png"):
        (folder / name).write_bytes((folder / name).read_bytes()[:200])
    status, found, said = answer(capsys, tmp_path / "sheet.png", *images(folder))
    assert status == ExitStatus.REFUSED
    assert "24 samples, 22 of them read" in found
    assert "3 places cannot be read:" in said
    for name in ("train/cat/03.png", "train/dog/11.png", "val/cat/00.png"):
        assert f"\n  cannot decode image {folder}/{name}: " in said
    assert (tmp_path / "sheet.png").exists()


def test_a_damaged_row_group_is_named_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "0.parquet"
    pq.write_table(pa.table({"x": np.arange(3000.0), "y": np.arange(3000) % 3}), file, row_group_size=1000)
    content = file.read_bytes()
    first = pq.ParquetFile(file).metadata.row_group(1).column(0)
    start = first.dictionary_page_offset or first.data_page_offset
    file.write_bytes(content[:start] + b"\xff" * 200 + content[start + 200 :])
    arguments = ["--dataset", "parquet", "--data-path", str(tmp_path)]
    status, _, said = answer(
        capsys, tmp_path / "a.png", *arguments, "--set", "data.options.inputs=[x]", "--set", "data.options.target=y"
    )
    assert status == ExitStatus.REFUSED
    assert "1 places cannot be read:" in said
    assert said.count(f"row group 1 of {file} cannot be read") == 1


def test_samples_without_a_number_and_classes_with_names_are_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The suffix is in capital letters, as some systems write them."""
    (tmp_path / "train").mkdir()
    (tmp_path / "val").mkdir()
    for split in ("train", "val"):
        values = np.where(np.arange(30) == 7, np.nan, 1.0)
        table = pa.table({"x": values, "y": np.arange(30) % 3 + 10})
        pq.write_table(table, tmp_path / split / "0.PARQUET")
    arguments = ["--dataset", "parquet", "--data-path", str(tmp_path)]
    options = ["--set", "data.options.inputs=[x]", "--set", "data.options.target=y"]
    status, found, _ = answer(capsys, tmp_path / "a.png", *arguments, *options)
    assert status == ExitStatus.DONE
    assert found.count("NaN or infinite inputs in 1 sample, by number: 7\n") == 2
    assert "inputs have mean 1 and standard deviation 0" in found
    assert "3 classes, by output of the model 0: 10, 1: 11, 2: 12" in found


def test_datasets_of_all_kinds_are_described(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for dataset, *expected in (
        ("diabetes", "targets float32 (1,)", "inputs have mean "),
        ("python_reference", "int64 (64,), 256 different tokens", "(64, 256), one for each position"),
        ("synthetic --set data.options.classes=30", "30 classes, from "),
    ):
        status, found, _ = answer(capsys, tmp_path / "sheet.png", "--dataset", *dataset.split(), "--samples", "1000")
        assert status == ExitStatus.DONE
        assert [one for one in (*expected, "give --rate") if one not in found] == []
        assert (tmp_path / "sheet.png").stat().st_size > 10_000


@pytest.mark.extended
def test_the_step_of_a_model_is_measured_on_this_machine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, found, _ = answer(capsys, tmp_path / "sheet.png", "--dataset", "digits", "--model", "mlp", "--samples", "9")
    assert status == ExitStatus.DONE
    assert "measured with mlp on this machine's cpu" in found
    assert "loader       data.loader_workers=" in found
    digits = ["--dataset", "digits", "--samples", "9", "--rate", "1"]
    assert "data.loader_workers=0: one core reads " in answer(capsys, tmp_path / "sheet.png", *digits)[1]
    assert [loader_processes(needed=10, read=read) for read in (1000, 999, 10, 9)] == [0, 1, 1, 2]


def test_wrong_input_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["--dataset", "image_folder", "--data-path", "s3://corpus/a"]
    status, found, error = answer(capsys, tmp_path / "sheet.png", *arguments)
    assert status == ExitStatus.WRONG_INPUT
    assert "is in a bucket, and data.cache is not set" in error
    assert not found
