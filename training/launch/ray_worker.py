"""Runs Ray's worker in a process that the kernel kills when the raylet, its parent, dies.

By itself, a worker whose raylet was killed exits after two seconds, and one that was just starting after half a minute.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """Replace this process by Ray's worker, with the same arguments; the kernel keeps the request."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != int(os.environ["RAY_RAYLET_PID"]):
            sys.exit("the raylet has exited")
    ray = find_spec("ray")  # imports nothing
    assert ray is not None
    assert ray.origin is not None
    worker = str(Path(ray.origin).parent / "_private" / "workers" / "default_worker.py")
    os.execv(sys.executable, [worker if part == sys.argv[0] else part for part in sys.orig_argv])  # noqa: S606


if __name__ == "__main__":
    main()
