"""torch's flight recorder of a rank: its newest collectives, kept in memory and written down when one fails.

With Gloo a collective that times out raises an error here. NCCL's watchdog ends the process instead; torch then writes the dump itself, as
a pickle that `torchfrtrace` and `training.flight_records` read.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch._C._distributed_c10d import _dump_fr_trace_json

from training import flight_records
from training.recovery.causes import is_communication_error

logger = logging.getLogger(__name__)

_COLLECTIVES = 1000
"""Kept in memory, some hundred bytes each: the ranks differ by a few at most when one of them hangs."""


class FlightRecorder:
    """The recorder of this process."""

    def __init__(self, run_directory: Path, *, attempt: int, rank: int) -> None:
        self._file = flight_records.dump_file(run_directory, attempt=attempt, rank=rank)

    def prepare(self) -> None:
        """Configure it, before the process group exists. Variables that are set already remain."""
        os.environ.setdefault("TORCH_FR_BUFFER_SIZE", str(_COLLECTIVES))
        os.environ.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")
        # torch appends the rank. Another attempt in this process has another file.
        os.environ["TORCH_FR_DUMP_TEMP_FILE"] = str(
            self._file.with_name(f"{self._file.name}{flight_records.NCCL_SUFFIX}")
        )

    @contextmanager
    def dumped_on_failure(self) -> Iterator[None]:
        """Write the collectives down if one fails in the block."""
        try:
            yield
        except Exception as error:
            if is_communication_error(error):
                self.dump()
            raise

    def dump(self) -> None:
        """Write the newest collectives down; on a full disk they are missing."""
        try:
            self._file.parent.mkdir(exist_ok=True)
            self._file.write_bytes(_dump_fr_trace_json())
        except Exception:
            logger.exception(
                "the newest collectives of this rank could not be written"
            )  # the error itself matters more
