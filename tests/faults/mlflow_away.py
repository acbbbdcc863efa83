"""MLflow goes away during a run and comes back: the run goes on, and nothing is missing in the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Final

from observability.runlog import Event, Notice, TrainingStarted, read_all, select
from tests.engines.mlflow_server import MlflowServer, local_server
from tests.engines.ray_cluster import short_folder
from tests.faults.cell import Cell, Fault, alone, fixed
from tests.faults.run import FaultedRun
from training.config.schema import TrainingSettings
from training.tracking.state import TrackingState

_STEP = 200
_CHOSEN = alone(loop={"epochs": 300}, checkpoint={"every_steps": 500}, tracking={"enabled": True, "dense_points": None})


class _TrackedRun(FaultedRun):
    """A run with a server of its own."""

    server: MlflowServer


@contextmanager
def _run_with_server(settings: TrainingSettings) -> Iterator[FaultedRun]:
    """A run that is delivered to a server with an SQLite database."""
    with short_folder() as folder, ExitStack() as undo:
        store = f"sqlite:///{folder / 'mlflow.db'}"
        server = local_server(folder, store=store, artifacts=str(folder / "artifacts"))
        undo.callback(server.kill)
        server.start()
        tracking = settings.tracking.model_copy(update={"uri": server.uri})
        run = _TrackedRun(settings.model_copy(update={"tracking": tracking}), folder)
        run.server = server
        yield undo.enter_context(closing(run))


def _away_and_back(run: FaultedRun) -> float:
    """Kill the server, and start it again once the run has noticed."""
    assert isinstance(run, _TrackedRun)
    run.wait_for_step(_STEP)
    began = time.time()
    run.server.kill()
    run.wait_for(_says("is unavailable"))
    run.server.start()
    run.wait_for(_says("is available again"))
    return began


def _says(text: str) -> Callable[[Event], bool]:
    return lambda event: isinstance(event, Notice) and text in event.message


def _everything_is_delivered(run: FaultedRun) -> None:
    """MLflow has the loss of every step, once."""
    from mlflow import MlflowClient  # noqa: PLC0415 - takes seconds, and only this cell needs it

    state = TrackingState.load(run.folder)
    assert state is not None
    started = select(read_all(run.folder), TrainingStarted)[-1]
    history = MlflowClient(tracking_uri=state.uri).get_metric_history(state.run_id, "train/loss")
    assert sorted(one.step for one in history) == list(range(1, started.total_steps + 1))


CELLS: Final = (
    Cell(
        "mlflow-away",
        Fault("SIGKILL of MLflow's server, which comes back later", f"step {_STEP}"),
        fixed(_CHOSEN),
        _away_and_back,
        most_lost=0,
        check=_everything_is_delivered,
        run_on=_run_with_server,
    ),
)
