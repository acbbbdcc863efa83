"""Reads epochs of images with loader processes or with Ray Data, as one rank does, and measures what it takes.

Usage: `python -m observability.benchmarks.reading_run loader|ray_data FOLDER`. Prints one JSON line.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path

import psutil
import ray

from observability.benchmarks.reading_path import BATCH, EPOCHS, data_settings
from training.data.loader import TrainLoader
from training.data.order import BatchPlan
from training.data.ray_reader import RayDataLoader
from training.data.registry import load_dataset


def main(reader: str, folder: str) -> None:
    """Read with one process or task, and print the seconds to the first batch, samples per second, and CPU seconds per 1,000 samples.

    The clock starts with the loader; Ray runs by then, as in a run. Rates are those after the first batch, and CPU time is that of this
    process and all that descend from it, Ray's included.
    """
    if reader == "ray_data":
        ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR)
    split = load_dataset(data_settings(Path(folder))).train
    plan = BatchPlan(size=len(split), global_batch=BATCH, world=1)
    began = time.perf_counter()
    loader = (
        TrainLoader(split, plan=plan, seed=0, rank=0, loader_workers=1)
        if reader == "loader"
        else RayDataLoader(split, plan=plan, seed=0, rank=0, loader_workers=1, rank_cpus=1)
    )
    first = samples = 0.0
    cpu = 0.0
    for epoch in range(EPOCHS):
        for batches in loader.epoch(epoch):
            if first:
                samples += sum(batch.count for batch in batches)
            else:
                first, cpu = time.perf_counter(), _cpu_seconds()
    seconds = time.perf_counter() - first
    print(
        json.dumps(
            {
                "first_seconds": first - began,
                "rate": samples / seconds,
                "cpu_per_thousand": 1000 * (_cpu_seconds() - cpu) / samples,
            }
        )
    )


def _cpu_seconds() -> float:
    """CPU time so far of this process and its descendants, also of children that have ended."""
    this = psutil.Process()
    times = [one.cpu_times() for one in (this, *this.children(recursive=True))]
    return sum(one.user + one.system for one in times) + times[0].children_user + times[0].children_system


if __name__ == "__main__":
    main(*sys.argv[1:3])
