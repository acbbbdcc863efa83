"""Loader processes that a fork left in a deadlock, in a program of their own: its hooks of `fork` cannot be taken back."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import os, sys, time
import torch
from torch.utils.data import DataLoader
from training.data import forking
from training.errors import PlatformError

forking.PATIENCE = (0.5, 60.0) if sys.argv[1] == "once" else (0.2, 0.2)
hung = []

def hang():  # in the child, before it runs anything of ours
    if sys.argv[1] == "always" or len(hung) == 1:
        time.sleep(600)

os.register_at_fork(before=lambda: hung.append(os.getpid()), after_in_child=hang)
loader = DataLoader([1, 2, 3], batch_size=None, num_workers=1, multiprocessing_context=forking.StartedForkContext())
try:
    print([int(one) for one in loader], len(hung))
except PlatformError as error:
    print(error, error.remedy, sep=chr(10))
"""


def _run(how_often: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, how_often], capture_output=True, text=True, check=True, timeout=200
    )


def test_a_process_that_hangs_in_the_fork_is_replaced() -> None:
    ran = _run("once")
    assert ran.stdout == "[1, 2, 3] 2\n"
    assert "a process of the data loader did not start in 0 s: starting another" in ran.stderr


def test_processes_that_never_start_are_an_error_with_a_remedy() -> None:
    ran = _run("always")
    assert ran.stdout.startswith("no process of the data loader started in 0 s")
    assert "data.loader_workers: 0" in ran.stdout
