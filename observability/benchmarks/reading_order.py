"""How fast Parquet files of large row groups are read in the orders that an epoch may have: random, windowed, and as they are stored."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray

from observability.benchmarks.measure import Comparison, measure_alternately
from training.config.schema import DataSettings, OptionValue
from training.data.registry import load_dataset
from training.data.sample_order import sample_order
from training.data.types import Split

RANDOM_GOAL = 10.0
"""Samples per second of the windowed order relative to the random one, at least."""

STORED_GOAL = 0.2
"""Samples per second of the windowed order relative to that of the rows in the files, at least."""

COLUMNS = 64
_BATCH = 256
_CACHE_MIB = 64
_SECONDS = 6.0


def write_table(folder: Path, *, rows: int, group: int) -> Path:
    """Write one Parquet file of `rows` rows, each `COLUMNS` random float32 in the list `x` and a class `label`; returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(0).standard_normal((rows, COLUMNS), dtype=np.float32)
    inputs = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), COLUMNS)
    table = pa.table({"x": inputs, "label": np.arange(rows) % 10})
    pq.write_table(table, folder / "0.parquet", row_group_size=group)
    return folder


def data_settings(folder: Path, **options: OptionValue) -> DataSettings:
    """The settings of a run that reads such a table."""
    return DataSettings(
        dataset="parquet", path=folder, options={"inputs": ["x"], "target": "label", "cache_mib": _CACHE_MIB, **options}
    )


def compare(*, rounds: int, scratch: Path, rows: int = 1_000_000, group: int = 100_000) -> list[Comparison]:
    """Compare the windowed order with the random one, and with the rows as they are stored, on one core.

    The cache holds two of the row groups; the window has four. A side reads a whole epoch in batches of 256, or until
    six seconds have passed.
    """
    torch.set_num_threads(1)
    folder = write_table(scratch / f"rows-{group}", rows=rows, group=group)
    plain, split = (load_dataset(data_settings(folder, **options)).train for options in ({}, {"shuffle": "windowed"}))

    def windowed() -> float:
        return _rate(split, sample_order(split, seed=0, epoch=0))

    def random() -> float:
        return _rate(plain, sample_order(plain, seed=0, epoch=0))

    def stored() -> float:
        return _rate(plain, np.arange(len(plain)))

    rates = measure_alternately(rounds, windowed, random, stored)
    return [
        Comparison(
            name=f"reading row groups of {group:,} rows, windowed and {name}",
            unit="samples/s",
            ours=rates[0],
            theirs=theirs,
            goal=goal,
            higher_is_better=True,
        )
        for name, theirs, goal in (("random", rates[1], RANDOM_GOAL), ("as stored", rates[2], STORED_GOAL))
    ]


def _rate(split: Split, order: NDArray[np.int64]) -> float:
    """Samples per second in this order."""
    done, start = 0, time.perf_counter()
    while done < len(order) and time.perf_counter() - start < _SECONDS:
        split.read(order[done : done + _BATCH])
        done = min(done + _BATCH, len(order))
    return done / (time.perf_counter() - start)
