"""Check the results of a finished `make train`: the complete run in MLflow with its model, and the report.

usage: python .ci/check_run.py RUN
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from observability.runlog import Evaluated, Step, read_all, select
from training.config.schema import RunSettings
from training.rundir import RunDirectory
from training.tracking.client import connect
from training.tracking.locations import tracking_uri
from training.tracking.state import TrackingState

MIN_ACCURACY = 0.97
"""Test accuracy of the default run on the digits."""


def main(name: str) -> None:
    """Check a run by name.

    Raises:
        AssertionError: a result is missing or wrong.
    """
    run = RunDirectory.open(name, root=RunSettings().directory)
    events = read_all(run.path)
    steps = {event.step for event in select(events, Step)}
    tests = [event for event in select(events, Evaluated) if event.split == "test"]
    assert tests, "the test split was not evaluated"
    accuracy = tests[-1].value("accuracy")
    assert accuracy >= MIN_ACCURACY, f"test accuracy {accuracy:.4f} is below {MIN_ACCURACY}"
    assert run.report.stat().st_size > 0, f"{run.report} is empty"

    state = TrackingState.load(run.path)
    assert state is not None, "the run was not uploaded to MLflow"
    client = connect(tracking_uri(run.settings().tracking, run.path))
    recorded = client.get_run(state.run_id)
    assert recorded.info.status == "FINISHED", f"MLflow reports the run as {recorded.info.status}"
    losses = {metric.step for metric in client.get_metric_history(state.run_id, "train/loss")}
    assert losses == steps, f"MLflow has the loss of {len(losses)} of {len(steps)} steps"
    assert recorded.data.metrics["test/accuracy"] == accuracy
    assert state.model_version, "no model version was registered"
    print(
        f"run {run.name}: {len(steps)} steps in MLflow as {state.run_id}, model version {state.model_version}, "
        f"test accuracy {accuracy:.4f}"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
