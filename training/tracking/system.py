"""Samples of the machine a run is on, under the names MLflow's own system metrics have, so that its pages show them as such.

They are spooled in the run's folder like its events, one JSON object a line, and delivered from there.
"""

from __future__ import annotations

import importlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

import psutil

from training.tracking.payload import Point, milliseconds

FILE_NAME = "system.jsonl"
INTERVAL_SECONDS = 10.0
FIRST_SECONDS = 2.0
"""Seconds before the first sample: a short run shall have some, too."""

_MEGABYTE = 1e6


@contextmanager
def sampling(run_directory: Path, *, since: float, interval: float = INTERVAL_SECONDS) -> Iterator[None]:
    """Sample the machine into the run's folder in a thread, until the block ends, and once more then.

    Args:
        run_directory: the run's folder.
        since: seconds since the epoch that a sample's step, in whole seconds, is counted from: the start of the run.
        interval: seconds between two samples.
    """
    is_over = threading.Event()
    psutil.cpu_percent()  # utilisation is that since the call before, and this is the first

    def run() -> None:
        pause = min(FIRST_SECONDS, interval)
        while not is_over.wait(pause):
            _append(run_directory, since=since)
            pause = interval
        _append(run_directory, since=since)

    thread = threading.Thread(target=run, name="system-metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def read(run_directory: Path, *, offset: int) -> tuple[list[Point], int]:
    """The samples behind a byte offset, and the offset behind the last complete one."""
    try:
        with (run_directory / FILE_NAME).open("rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return [], offset
    complete = data[: data.rfind(b"\n") + 1]
    samples = [json.loads(line) for line in complete.splitlines()]
    points = [
        Point(f"system/{name}", value, milliseconds(sample["time"]), sample["step"])
        for sample in samples
        for name, value in sample["metrics"].items()
    ]
    return points, offset + len(complete)


def measure() -> dict[str, float]:
    """The machine now: CPU and memory, and each GPU where NVIDIA's driver and its Python binding are installed."""
    memory = psutil.virtual_memory()
    return {
        "cpu_utilization_percentage": psutil.cpu_percent(),
        "system_memory_usage_megabytes": (memory.total - memory.available) / _MEGABYTE,
        "system_memory_usage_percentage": memory.percent,
        **_measure_gpus(),
    }


def _append(run_directory: Path, *, since: float) -> None:
    now = time.time()
    sample = {"time": now, "step": int(now - since), "metrics": measure()}
    with (run_directory / FILE_NAME).open("a", encoding="utf-8") as file:
        file.write(json.dumps(sample) + "\n")


def _measure_gpus() -> dict[str, float]:
    nvml = _nvml()
    if nvml is None:
        return {}
    values: dict[str, float] = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        values[f"gpu_{index}_memory_usage_megabytes"] = memory.used / _MEGABYTE
        values[f"gpu_{index}_memory_usage_percentage"] = 100 * memory.used / memory.total
        # A GPU that is divided by MIG has neither of these.
        with suppress(nvml.NVMLError):
            values[f"gpu_{index}_utilization_percentage"] = nvml.nvmlDeviceGetUtilizationRates(handle).gpu
            values[f"gpu_{index}_power_usage_watts"] = nvml.nvmlDeviceGetPowerUsage(handle) / 1000
    return values


def _nvml() -> ModuleType | None:
    """NVML's binding, initialised; None on a machine without it or without a driver. Initialising again is cheap."""
    try:
        nvml = importlib.import_module("pynvml")
    except ModuleNotFoundError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml
