"""System metrics."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from queue import Queue
from types import SimpleNamespace

import pytest

from tests.waiting import wait_until
from training.tracking import system


def test_the_machine_is_sampled_during_the_block_and_at_its_end(tmp_path: Path) -> None:
    """Also after a line that a full disk cut off."""
    (tmp_path / system.FILE_NAME).write_text('{"time": 1.0, "step": 0, "metr')
    with system.sampling(tmp_path, since=time.time() - 5, interval=0.05):
        wait_until(lambda: bool(system.read_samples(tmp_path, offset=0)[0]))
    samples, offset = system.read_samples(tmp_path, offset=0)
    cpu = [point for sample in samples for point in sample if point.key == "system/cpu_utilization_percentage"]
    assert len(cpu) >= 2
    assert all(5 <= point.step < 60 and 0 <= point.value <= 100 for point in cpu)
    assert offset == (tmp_path / system.FILE_NAME).stat().st_size


def test_reading_starts_at_the_offset_and_skips_an_incomplete_line(tmp_path: Path) -> None:
    line = '{"time": 1.0, "step": 0, "metrics": {"x": 1.0}}\n'
    assert system.read_samples(tmp_path, offset=0) == ([], 0)
    file = tmp_path / system.FILE_NAME
    file.write_text(line + line[:20])
    samples, offset = system.read_samples(tmp_path, offset=0)
    assert (len(samples), offset) == (1, len(line))
    file.write_text(line + line)
    assert len(system.read_samples(tmp_path, offset=offset)[0]) == 1


def test_sampling_goes_on_after_a_sample_that_was_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / system.FILE_NAME
    file.mkdir()
    samples: Queue[dict[str, float]] = Queue()

    def measure() -> dict[str, float]:
        samples.put({"x": 1.0})
        return {"x": 1.0}

    monkeypatch.setattr(system, "measure_system", measure)
    with system.sampling(tmp_path, since=time.time(), interval=0.01):
        for _ in range(2):  # the second sample is taken after the first one failed
            samples.get(timeout=60)
        file.rmdir()
    assert system.read_samples(tmp_path, offset=0)[0]


class NvmlError(Exception):
    """The error of pynvml."""


def nvml(*, has_driver: bool, has_mig: bool) -> SimpleNamespace:
    """A fake pynvml with one GPU."""

    def init() -> None:
        if not has_driver:
            raise NvmlError

    def utilisation(handle: int) -> SimpleNamespace:
        if has_mig:
            raise NvmlError
        return SimpleNamespace(gpu=50)

    return SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=init,
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(used=25_000_000, total=100_000_000),
        nvmlDeviceGetUtilizationRates=utilisation,
        nvmlDeviceGetPowerUsage=lambda _: 300_000,
    )


def test_a_gpu_is_measured_as_far_as_its_mode_and_driver_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = {"gpu_0_memory_usage_megabytes": 25.0, "gpu_0_memory_usage_percentage": 25.0}
    whole = {**memory, "gpu_0_utilization_percentage": 50, "gpu_0_power_usage_watts": 300.0}
    for has_driver, has_mig, expected in ((True, False, whole), (True, True, memory), (False, False, {})):
        monkeypatch.setitem(sys.modules, "pynvml", nvml(has_driver=has_driver, has_mig=has_mig))
        found = {key: value for key, value in system.measure_system().items() if key.startswith("gpu_")}
        assert found == expected
