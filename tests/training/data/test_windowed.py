"""The windowed shuffle: its order, and what is read for it."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.training.data.ids import IdSplit
from tests.training.data.test_parquet import FEATURES, load, rows, write
from tests.training.data.test_tar_shards import brightness, members
from tests.training.data.test_tar_shards import load as load_shards
from tests.training.data.test_tar_shards import write as write_shard
from training.config.schema import DataSettings
from training.data.loader import TrainLoader
from training.data.mixup import MixedSplit
from training.data.order import BatchPlan, windowed_order
from training.data.parquet_files import ParquetFile, RowGroups
from training.data.parquet_splits import ParquetSplit
from training.data.registry import validate
from training.data.sample_order import WindowedSplit, sample_order
from training.data.types import Split
from training.errors import SettingsError

SEEDS = st.integers(0, 2**63 - 1)
SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=12)
WINDOWS = st.integers(1, 14)


def groups_of(sizes: list[int]) -> NDArray[np.int64]:
    """The group of each sample of groups of these sizes."""
    return np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)


@given(seed=SEEDS, epoch=st.integers(0, 1000), sizes=SIZES, window=WINDOWS)
def test_an_epoch_leaves_a_window_for_good(seed: int, epoch: int, sizes: list[int], window: int) -> None:
    groups = groups_of(sizes)
    order = windowed_order(seed=seed, epoch=epoch, groups=groups, window=window)
    assert sorted(order) == list(range(len(groups)))
    seen: set[int] = set()
    left = groups[order].tolist()
    while left:
        # The samples of the groups that come next: `window` of them, or all that remain.
        count = min(window, len(sizes) - len(seen))
        size = next(size for size in range(1, len(left) + 1) if _is_whole(left[:size], sizes, count))
        seen |= set(left[:size])
        left = left[size:]
    assert seen == set(range(len(sizes)))


def _is_whole(found: list[int], sizes: list[int], count: int) -> bool:
    """Whether these are all samples of `count` groups."""
    numbers = Counter(found)
    return len(numbers) == count and all(numbers[one] == sizes[one] for one in numbers)


def test_the_order_never_changes_between_versions() -> None:
    """A resumed run must read exactly the remaining samples."""
    groups = groups_of([3, 2, 3, 1])
    orders = [windowed_order(seed=7, epoch=epoch, groups=groups, window=2).tolist() for epoch in (0, 1)]
    assert orders == [[4, 8, 3, 0, 2, 7, 1, 5, 6], [8, 4, 3, 7, 5, 2, 1, 0, 6]]


def epoch_ids(split: Split, *, batch: int, world: int, accumulation: int = 1, start: int = 0) -> list[list[int]]:
    """The ids of each step of an epoch, over all ranks."""
    plan = BatchPlan(size=len(split), global_batch=batch, world=world, accumulation=accumulation)
    loaders = [TrainLoader(split, plan=plan, seed=3, rank=rank).epoch(2, start) for rank in range(world)]
    return [
        [int(one) for micros in step for batch in micros for one in batch.ids] for step in zip(*loaders, strict=True)
    ]


@settings(deadline=None)
@given(
    sizes=SIZES,
    window=WINDOWS,
    batch=st.integers(1, 20),
    world=st.sampled_from([1, 2, 4]),
    accumulation=st.integers(1, 3),
)
def test_every_world_size_and_every_start_in_an_epoch_reads_the_same_steps(
    sizes: list[int], window: int, batch: int, world: int, accumulation: int
) -> None:
    split = WindowedSplit(IdSplit(sum(sizes)), groups=groups_of(sizes), window=window)
    single = epoch_ids(split, batch=batch, world=1)
    assert sorted(one for step in single for one in step) == list(range(sum(sizes)))
    assert epoch_ids(split, batch=batch, world=world, accumulation=accumulation) == single
    half = len(single) // 2
    assert epoch_ids(split, batch=batch, world=world, start=half) == single[half:]


@pytest.mark.parametrize("batch", [4, 30, 64], ids="batch={}".format)
def test_an_epoch_decodes_each_row_group_once_although_the_cache_is_too_small(tmp_path: Path, batch: int) -> None:
    write(tmp_path / "0.parquet", {"a": np.arange(200.0)}, group=10)
    decoded: Counter[float] = Counter()

    def decode(part: pa.Table) -> NDArray[np.generic]:
        values = np.asarray(part.column("a").to_numpy(), dtype=np.float32)
        decoded[float(values[0])] += 1
        return values[:, None]

    files = [ParquetFile.open(tmp_path / "0.parquet")]
    groups = RowGroups(files, ["a"], decode, cache_bytes=1, cache_groups=3)
    numbers = np.arange(200)
    split = ParquetSplit(groups, numbers, numbers)
    windowed = WindowedSplit(split, groups=groups.group_of(numbers), window=3)
    assert sorted(one for step in epoch_ids(windowed, batch=batch, world=1) for one in step) == list(range(200))
    assert set(decoded.values()) == {1}
    assert len(decoded) == 20


def test_the_training_split_of_parquet_reads_a_window_of_row_groups_at_a_time(tmp_path: Path) -> None:
    write(tmp_path / "0.parquet", rows(140), group=7)
    windowed = load(tmp_path, **FEATURES, shuffle="windowed", window=2)
    order = sample_order(windowed.train, seed=0, epoch=0)
    assert sorted(order) == list(range(len(windowed.train))), "a tenth is held out, some of it in each row group"
    inputs, labels = windowed.train.read(order[:6])
    assert len(set((inputs[:, 0].long() // 7).tolist())) == 2
    assert torch.equal(labels, inputs[:, 0].long() % 3)
    plain = load(tmp_path, **FEATURES)
    assert torch.equal(plain.train.read(order)[0], windowed.train.read(order)[0]), "ids name the same samples"
    assert sample_order(plain.train, seed=0, epoch=0).tolist() != order.tolist()


def test_shards_are_read_in_windows_too(tmp_path: Path) -> None:
    for number in range(6):
        write_shard(tmp_path / f"{number}.tar", members(range(number * 8, number * 8 + 8)))
    windowed = load_shards(tmp_path, shuffle="windowed", window=1)
    order = sample_order(windowed.train, seed=0, epoch=0)
    numbers = brightness(windowed.train.read(order)[0])
    shards = [number // 8 for number in numbers]
    assert len([one for one, _ in groupby(shards)]) == 6, "each shard is left for good"
    assert sorted(order) == list(range(len(windowed.train)))
    assert windowed.train.draws == 5
    assert windowed.fingerprint != load_shards(tmp_path).fingerprint


def test_the_order_is_part_of_the_fingerprint_and_a_window_needs_a_windowed_shuffle(tmp_path: Path) -> None:
    """A resume in another order would read samples twice."""
    write(tmp_path / "0.parquet", rows(40))
    prints = [
        load(tmp_path, **FEATURES, **options).fingerprint
        for options in ({}, {"shuffle": "windowed"}, {"shuffle": "windowed", "window": 2})
    ]
    assert len(set(prints)) == 3
    assert load(tmp_path, **FEATURES, shuffle="random").fingerprint == prints[0]
    with pytest.raises(SettingsError, match="window=4 is an option of shuffle=windowed, got shuffle=random"):
        validate(DataSettings(dataset="parquet", path=Path("x"), options={**FEATURES, "window": 4}))


def test_mixing_keeps_the_order() -> None:
    split = WindowedSplit(IdSplit(30), groups=groups_of([10, 10, 10]), window=1)
    mixed = MixedSplit(split, alpha=0.2, classes=30)
    assert sample_order(mixed, seed=1, epoch=4).tolist() == sample_order(split, seed=1, epoch=4).tolist()
