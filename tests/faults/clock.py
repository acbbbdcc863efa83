"""The wall clock of a machine is set while a run trains. A library that is preloaded into the run's processes sets it for them alone."""

from __future__ import annotations

import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.engines.ray_cluster import short_folder
from tests.faults.cell import Cell, Fault, fixed, two_ranks
from tests.faults.injections import STEP
from tests.faults.run import FaultedRun
from training.config.schema import TrainingSettings

_SOURCE = Path(__file__).with_name("clock.c")
_HOUR: Final = 3600


class _ClockRun(FaultedRun):
    """A run with a clock of its own."""

    offset: Path


@contextmanager
def _run_with_clock(settings: TrainingSettings) -> Iterator[FaultedRun]:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    with short_folder() as folder:
        library, offset = folder / "clock.so", folder / "offset"
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl"], check=True)
        offset.write_bytes(struct.pack("l", 0))
        environment = {"LD_PRELOAD": str(library), "RTP_TEST_CLOCK": str(offset)}
        with closing(_ClockRun(settings, folder, environment=environment)) as run:
            run.offset = offset
            yield run


def _set(seconds: int) -> Callable[[FaultedRun], float]:
    def inject(run: FaultedRun) -> float:
        assert isinstance(run, _ClockRun)
        run.wait_for_step(STEP)
        began = time.time()
        with run.offset.open("r+b") as file:
            file.write(struct.pack("l", seconds))
        return began

    return inject


def _cell(name: str, where: str, seconds: int) -> Cell:
    fault = Fault(f"the wall clock is set {where} by an hour", f"step {STEP}")
    return Cell(name, fault, fixed(two_ranks()), _set(seconds), most_lost=0, run_on=_run_with_clock)


CELLS: Final = (_cell("clock-set-back", "back", -_HOUR), _cell("clock-set-forward", "forward", _HOUR))
