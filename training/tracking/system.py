"""System metrics of the machine, under the names of MLflow's system metrics, so that its UI shows them.

They are spooled in the run's folder, one JSON object per line, and delivered from there.
"""

from __future__ import annotations

import importlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from types import ModuleType

import psutil

from observability.line_file import LineFile, read_lines
from training.tracking.payload import milliseconds
from training.tracking.point import Point

FILE_NAME = "system.jsonl"
SERIES = "system"
"""Name of the series of samples in the delivery's state."""

INTERVAL_SECONDS = 10.0
FIRST_SECONDS = 2.0
"""Seconds before the first sample, so that short runs have some."""

MAX_SAMPLES = 1000
"""Samples that are read at a time: a bound of the memory they take."""

_MEGABYTE = 1e6


@contextmanager
def sampling(run_directory: Path, *, since: float, interval: float = INTERVAL_SECONDS) -> Iterator[None]:
    """Sample the machine in a thread while the block runs, and once more at its end.

    Args:
        run_directory: the run's folder.
        since: start of the run in seconds since the epoch; a sample's step is the number of whole seconds after it.
        interval: seconds between two samples.
    """
    is_stopped = threading.Event()
    psutil.cpu_percent()  # returns the utilisation since the previous call: this is the first

    def run() -> None:
        pause = min(FIRST_SECONDS, interval)
        is_last = False
        while not is_last:
            is_last = is_stopped.wait(pause)
            with suppress(OSError):  # a full disk costs samples, not the thread
                _append(run_directory, since=since)
            pause = interval

    thread = threading.Thread(target=run, name="system-metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_stopped.set()
        thread.join()


def read_samples(run_directory: Path, *, offset: int) -> tuple[list[list[Point]], int]:
    """The samples after a byte offset, at most `MAX_SAMPLES`, and the offset after the last one; a damaged line is skipped."""
    samples: list[list[Point]] = []
    end = offset
    for line, end in islice(read_lines(run_directory / FILE_NAME, offset=offset), MAX_SAMPLES):  # noqa: B007 - returned
        with suppress(ValueError):
            sample = json.loads(line)
            samples.append(
                [
                    Point(f"system/{name}", value, milliseconds(sample["time"]), sample["step"])
                    for name, value in sample["metrics"].items()
                ]
            )
    return samples, end


def measure_system() -> dict[str, float]:
    """CPU, memory, and each GPU if NVIDIA's driver and pynvml are installed."""
    memory = psutil.virtual_memory()
    return {
        "cpu_utilization_percentage": psutil.cpu_percent(),
        "system_memory_usage_megabytes": (memory.total - memory.available) / _MEGABYTE,
        "system_memory_usage_percentage": memory.percent,
        **_measure_gpus(),
    }


def _append(run_directory: Path, *, since: float) -> None:
    now = time.time()
    sample = {"time": now, "step": int(now - since), "metrics": measure_system()}
    with LineFile(run_directory / FILE_NAME) as file:
        file.append(f"{json.dumps(sample)}\n".encode())


def _measure_gpus() -> dict[str, float]:
    nvml = _init_nvml()
    if nvml is None:
        return {}
    values: dict[str, float] = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        values[f"gpu_{index}_memory_usage_megabytes"] = memory.used / _MEGABYTE
        values[f"gpu_{index}_memory_usage_percentage"] = 100 * memory.used / memory.total
        # Not supported on a GPU in MIG mode.
        with suppress(nvml.NVMLError):
            values[f"gpu_{index}_utilization_percentage"] = nvml.nvmlDeviceGetUtilizationRates(handle).gpu
            values[f"gpu_{index}_power_usage_watts"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
    return values


def _init_nvml() -> ModuleType | None:
    """pynvml, initialised; None without pynvml or driver. Repeated initialisation is cheap."""
    try:
        nvml = importlib.import_module("pynvml")
    except ModuleNotFoundError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml
