"""Keeps a worker's pod while a rank is in it: the pod's preStop hook (`platform_charts.jobs.drain`) waits for the lock."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.spec.cluster_names import POD_LOCK_VARIABLE


@contextmanager
def holding_the_pod() -> Iterator[None]:
    """Share the lock on the pod of this process until the end of the block, or of the process; does nothing elsewhere."""
    file = os.environ.get(POD_LOCK_VARIABLE)
    if file is None:
        yield
        return
    with Path(file).open("a", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield
