"""Runs on Parquet, shards and texts in a bucket, from the upload to the trained model, equal those on local files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from observability.runlog import Notice, Phase, TrainingStarted, read_all, select
from tests.engines.s3 import S3Api
from tests.platform_charts.images.data_sync.bucket import Bucket, new_bucket
from tests.training.data import test_parquet, test_tar_shards
from tests.training.data.test_cache import contents
from tests.training.runs import losses_of, run_alone, small_settings
from training.config.schema import TrainingSettings

pytestmark = pytest.mark.extended


def _write_parquet(folder: Path) -> None:
    for number in range(3):
        test_parquet.write(folder / "train" / f"{number}.parquet", test_parquet.rows(30, first=30 * number))
    test_parquet.write(folder / "val" / "0.parquet", test_parquet.rows(20))


def _write_shards(folder: Path) -> None:
    for number in range(3):
        test_tar_shards.write(folder / f"{number}.tar", test_tar_shards.members(range(16 * number, 16 * (number + 1))))


def _write_texts(folder: Path) -> None:
    for number in range(3):
        file = folder / "part" / f"{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(" ".join(f"{math.isqrt(one)} is the root of {one}." for one in range(number, 900, 3)))


_CASES: Mapping[str, tuple[Callable[[Path], None], dict[str, Any]]] = {
    "parquet": (
        _write_parquet,
        {
            "data": {"dataset": "parquet", "options": {**test_parquet.FEATURES, "shuffle": "windowed", "window": 2}},
            "model": {"name": "mlp"},
        },
    ),
    "tar_shards": (
        _write_shards,
        {"data": {"dataset": "tar_shards", "options": {"image_size": 8}}, "model": {"name": "simple_cnn"}},
    ),
    "byte pairs": (
        _write_texts,
        {
            "data": {"dataset": "text_files", "options": {"tokenizer": "bpe", "vocabulary": 300, "length": 16}},
            "model": {"name": "transformer", "options": {"layers": 1, "width": 16, "heads": 2}},
            "objective": {"name": "language_modelling"},
        },
    ),
}


@pytest.fixture
def bucket(s3_api: S3Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket that the copies of this process can read."""
    for name, value in s3_api.environment().items():
        monkeypatch.setenv(name, value)
    with new_bucket(s3_api, tmp_path / "unused") as found:
        yield found


@pytest.mark.parametrize("case", _CASES)
def test_a_run_on_a_bucket_equals_one_on_the_uploaded_files(case: str, bucket: Bucket, tmp_path: Path) -> None:
    write, sections = _CASES[case]
    local = tmp_path / "local"
    write(local)
    uploaded = contents(local)
    bucket.put(uploaded)
    loop = {"epochs": 2, "global_batch": 16}

    def settings(**data: str) -> TrainingSettings:
        return small_settings(**{**sections, "loop": loop, "data": {**sections["data"], **data}})

    expected = run_alone(settings(path=str(local)), tmp_path / "runs" / "local")
    assert (expected.status, len(expected.weights_sha256)) == ("done", 64)
    in_bucket = settings(path=f"s3://{bucket.name}/data", cache=str(tmp_path / "cache"))
    # The second run finds the copy, and what the first one has written beside it.
    for name in ("copied", "found"):
        assert run_alone(in_bucket, tmp_path / "runs" / name) == expected
        assert losses_of(tmp_path / "runs" / name) == losses_of(tmp_path / "runs" / "local")
    starts = [select(read_all(tmp_path / "runs" / name), TrainingStarted) for name in ("local", "copied", "found")]
    assert len({start.dataset_fingerprint for (start,) in starts}) == 1
    notices = [select(read_all(tmp_path / "runs" / name), Notice) for name in ("copied", "found")]
    assert [any(f"{len(uploaded)} to copy" in one.message for one in of_run) for of_run in notices] == [True, False]
    assert "cache" in [one.name for one in select(read_all(tmp_path / "runs" / "copied"), Phase)]
