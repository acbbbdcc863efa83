"""What a rank measures of its own GPU: utilization and memory."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch

READ_SECONDS = 5.0
"""NVML takes up to milliseconds to answer, so it is asked this often."""


@dataclass(frozen=True, kw_only=True)
class GpuUsage:
    """A GPU's usage.

    Attributes:
        utilization: share of the last second in which a kernel ran, from 0 to 1 (NVML); NaN if the driver does not tell, as for MIG.
        allocated_bytes: memory of tensors.
        reserved_bytes: memory that PyTorch's caching allocator holds.
    """

    utilization: float
    allocated_bytes: float
    reserved_bytes: float


class GpuProbe:
    """Measures the GPU of this process."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._read_at = -math.inf
        self._utilization = math.nan

    def read(self) -> GpuUsage:
        """The usage; the utilization may be `READ_SECONDS` old."""
        now = time.monotonic()
        if now - self._read_at >= READ_SECONDS:
            self._read_at = now
            self._utilization = self._read_utilization()
        return GpuUsage(
            utilization=self._utilization,
            allocated_bytes=torch.cuda.memory_allocated(self._device),
            reserved_bytes=torch.cuda.memory_reserved(self._device),
        )

    def _read_utilization(self) -> float:
        try:
            return torch.cuda.utilization(self._device) / 100
        except Exception:  # noqa: BLE001 - NVML's errors have no public base class, and a metric must not end the training
            return math.nan
