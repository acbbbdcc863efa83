"""Delivers a run in a series of processes; each saves the cursor once and is killed before it saves again.

`python -m tests.training.tracking.kill_at_each_save RUN_DIRECTORY` prints how many were killed before one finished. The processes are
forks of one that has imported everything, because imports would take most of the test's time.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from importlib import import_module
from pathlib import Path

from tests.training.tracking.recorded import InProcessRegistration
from training.tracking import delivery, model
from training.tracking.delivery import Delivery, last_start
from training.tracking.state import TrackingState

_save = TrackingState.save


def _deliver(run_directory: Path) -> None:
    """Deliver, and die by SIGKILL instead of saving the cursor a second time."""
    saves = itertools.count(1)

    def save_or_die(state: TrackingState, directory: Path) -> None:
        if next(saves) > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        _save(state, directory)

    setattr(TrackingState, "save", save_or_die)  # noqa: B010 - mypy rejects an assignment to a method
    started = last_start(run_directory)
    assert started is not None
    Delivery(run_directory, started).deliver(is_finished=True)


def main(run_directory: Path) -> int:
    """Deliver until a process finishes; returns how many were killed before."""
    killed = 0
    while True:
        child = os.fork()
        if child == 0:
            _deliver(run_directory)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return killed
        assert os.WIFSIGNALED(status), status
        killed += 1


if __name__ == "__main__":
    for module in (  # MLflow imports these lazily
        "mlflow.pytorch",
        "mlflow.store.tracking.sqlalchemy_store",
        "mlflow.store.model_registry.sqlalchemy_store",
    ):
        import_module(module)
    model.warm_up_export()
    setattr(delivery, "ModelRegistration", InProcessRegistration)  # noqa: B010 - mypy rejects an assignment to a class
    print(main(Path(sys.argv[1])))
