"""Entry of the evaluator: `python -m training.validation DESCRIPTOR PARENT`, started by `training.validation.process`."""

from __future__ import annotations

import logging
import os
import socket
import sys
from typing import Final

from training.launch.processes import die_with_parent

_NICE: Final = 10
"""Added to its niceness: a CPU that a rank wants is the rank's (sched(7): at 10, about a tenth of the share of a process at 0)."""


def main(descriptor: int, parent: int) -> None:
    """Evaluate for the rank that has started this process.

    Args:
        descriptor: of the socket that the rank has passed on.
        parent: process id of the rank.
    """
    die_with_parent()
    if os.getppid() != parent:  # the kernel does not signal a death before the request
        sys.exit(f"rank 0 (process {parent}) has exited")
    os.nice(_NICE)
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    from training.validation.evaluator import serve  # noqa: PLC0415 - imports torch, and rank 0 may die meanwhile

    # A copy: the descriptor itself stays open until this process has ended and its status is known.
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        serve(connection)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
