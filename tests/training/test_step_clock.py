"""The clock of a step on a real GPU: its parts are those of the device, and are read without another synchronization."""

from __future__ import annotations

import pytest
import torch

from tests.engines.report_table import ran, skipped
from training.gpu_usage import GpuProbe
from training.step_clock import step_clock


@pytest.fixture
def gpu() -> torch.device:
    if not torch.cuda.is_available():
        skipped("GPU", "torch sees no GPU", "run the tests on a machine with one")
    ran("GPU")
    return torch.device("cuda", 0)


def test_work_of_the_gpu_counts_between_its_marks(gpu: torch.device) -> None:
    clock = step_clock(gpu)
    matrix = torch.randn(4096, 4096, device=gpu)
    for _ in range(2):  # the second time with events of the first
        clock.restart()
        began = clock.mark()
        small = clock.mark()
        for _ in range(20):
            matrix @ matrix
        large = clock.mark()
        torch.cuda.synchronize(gpu)
        assert clock.seconds(began, small) < clock.seconds(small, large)
        assert clock.seconds_since(large) >= 0


def test_a_probe_sees_the_memory_of_tensors(gpu: torch.device) -> None:
    probe = GpuProbe(gpu)
    before = probe.read().allocated_bytes
    kept = torch.empty(2**20, dtype=torch.uint8, device=gpu)
    after = probe.read()
    assert after.allocated_bytes - before >= kept.numel()
    assert after.reserved_bytes >= after.allocated_bytes
