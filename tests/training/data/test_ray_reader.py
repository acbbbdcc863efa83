"""Ray Data reads the same samples in the same order as the loaders, also after a stop within an epoch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import ray
import torch

from tests.engines.ray_cluster import RayCluster, ray_cluster
from tests.training.config.refused import assert_refused
from tests.training.data import test_parquet, test_tar_shards
from tests.training.launch.ranks import run_world
from tests.training.runs import small_settings, steps_of
from training.callbacks import sample_ledger
from training.config.schema import TrainingSettings
from training.data.types import Split
from training.launch.task import RankTask, WorkersFailedError

__all__ = ["ray_cluster"]  # fixture

EVERY_DIGIT = list(range(1293))


READ_BY_RAY = {"reader": "ray_data", "loader_workers": 1}


def settings(launcher: str, *, max_steps: int | None = None) -> TrainingSettings:
    """Two epochs with augmentation; the global batch does not divide the 1293 samples."""
    return small_settings(
        loop={"global_batch": 96, "accumulation": 2, "log_sample_ids": True, "max_steps": max_steps},
        schedule={"name": "constant"},
        scale={"launcher": launcher, "workers": 2},
        data=READ_BY_RAY if launcher == "ray" else {},
    )


def test_a_run_that_ray_data_reads_equals_one_with_loaders(ray_cluster: RayCluster, tmp_path: Path) -> None:
    expected = run_world(settings("torchrun"), tmp_path / "loaders")
    folder = tmp_path / "ray"
    assert ray_cluster.run(settings("ray", max_steps=9), folder).step == 9, "of 14 in an epoch"
    task = RankTask(settings=settings("ray"), run_directory=folder, attempt=1)
    assert ray_cluster.launch(task, on_phase=lambda _: None) == expected
    assert [one.loss for one in steps_of(folder)] == [one.loss for one in steps_of(tmp_path / "loaders")]
    assert sample_ledger.consumed_ids(folder) == {1: EVERY_DIGIT, 2: EVERY_DIGIT}


def test_a_sample_that_cannot_be_read_is_named_as_by_a_loader(ray_cluster: RayCluster, tmp_path: Path) -> None:
    file = tmp_path / "data" / "0.parquet"
    test_parquet.write(file, {"tokens": [[1, 2, 3], [4, 5, 60]] * 40})
    # The last row group: before the first batch, the run reads its first sample.
    metadata = pq.ParquetFile(file).metadata
    last = metadata.row_group(metadata.num_row_groups - 1).column(0)
    content = bytearray(file.read_bytes())
    start = last.dictionary_page_offset or last.data_page_offset
    content[start : start + last.total_compressed_size] = b"\xff" * last.total_compressed_size
    file.write_bytes(content)
    options = {"kind": "tokens", "inputs": ["tokens"], "vocabulary": 61}
    chosen = small_settings(
        data={"dataset": "parquet", "path": str(file.parent), "options": options, **READ_BY_RAY},
        model={"name": "transformer", "options": {"layers": 1, "width": 8, "heads": 1}},
        objective={"name": "language_modelling"},
        scale={"launcher": "ray", "workers": 1},
    )
    with pytest.raises(WorkersFailedError):
        ray_cluster.run(chosen, tmp_path / "run")
    found = json.loads((tmp_path / "run" / "failures" / "attempt-0-rank-0.json").read_text(encoding="utf-8"))
    assert re.fullmatch(rf"row group 11 of {file} cannot be read: .*", found["message"])
    assert found["remedy"] == "write or copy the file again"


def _parquet(folder: Path) -> Split:
    test_parquet.write(folder / "0.parquet", test_parquet.rows(60))
    return test_parquet.load(folder, **test_parquet.FEATURES).train


def _shards(folder: Path) -> Split:
    test_tar_shards.write(folder / "0.tar", test_tar_shards.members(range(20)))
    return test_tar_shards.load(folder).train


@pytest.mark.parametrize("make", [_parquet, _shards])
def test_a_split_is_sent_without_what_its_process_has_read(tmp_path: Path, make: Callable[[Path], Split]) -> None:
    split = make(tmp_path)
    ids = np.arange(len(split))
    expected = split.read(ids)
    sent = ray.cloudpickle.dumps(split)
    found = ray.cloudpickle.loads(sent).read(ids)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert len(sent) < 10_000 + 2 * len(ray.cloudpickle.dumps(make(tmp_path))), "no decoded rows"


def test_ray_data_without_tasks_or_without_ray_is_refused() -> None:
    cases = {
        "data.loader_workers=0": "reader=ray_data needs loader_workers=1 or more",
        "data.loader_workers=1 scale.launcher=torchrun": "data.reader=ray_data needs scale.launcher=ray, got torchrun",
    }
    assert_refused(cases, "data.reader=ray_data")
