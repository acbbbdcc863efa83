"""Runs the conformance suite for commands of the stack, in a process of its own: the trainer's commands are not part of the stack."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

from infra.spec.errors import ExitStatus
from infra.spec.release_rules import ROOT
from infra.spec.signals import ENDINGS, handling

_POLL_SECONDS = 0.2
_GRACE_SECONDS = 60.0
"""How long a suite may take to delete its job after a signal that it got as well, from the terminal."""


def run_conformance(environment: str, *options: str) -> int:
    """Run the suite; returns its exit status, and `FAILED` if a signal ended it.

    A signal that ends this process is not the end of the suite's: its job holds GPUs, and the suite deletes it. The terminal sends
    Ctrl-C to both processes, and a second one would interrupt the deletion; SIGTERM comes to this process alone, and is passed on.

    Args:
        environment: name of the environment.
        options: of the command `conformance`.

    Raises:
        KeyboardInterrupt: a signal came meanwhile; the suite has ended.
    """
    received: list[signal.Signals] = []
    command = [sys.executable, "-m", "training", "conformance", "--env", environment, *options]
    with handling(ENDINGS, received.append), subprocess.Popen(command, cwd=ROOT) as suite:
        status = _wait(suite, received)
    if received:
        raise KeyboardInterrupt
    return status if status >= 0 else ExitStatus.FAILED


def _wait(suite: subprocess.Popen[bytes], received: list[signal.Signals]) -> int:
    """The suite's status; it is told to end by SIGTERM, or if it goes on after another signal."""
    is_told, first = False, 0.0
    while True:
        try:
            return suite.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if not received or is_told:
                continue
            first = first or time.monotonic()
            if signal.SIGTERM in received or time.monotonic() - first > _GRACE_SECONDS:
                suite.terminate()
                is_told = True
