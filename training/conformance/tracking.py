"""Looks up a run in MLflow, as somebody would who reads its results there. Imports MLflow."""

from __future__ import annotations

from training.conformance.facts import TrackingFacts
from training.rundir import RunDirectory
from training.tracking.client import STORE_ERRORS, connect, summarize
from training.tracking.locations import redact_uri
from training.tracking.state import TrackingState

_LOSS = "train/loss"


def tracking_facts(run: RunDirectory) -> TrackingFacts:
    """What MLflow's server has of the run, by the run's tracking state.

    Raises:
        ValueError: the run was not sent anywhere.
    """
    state = TrackingState.load(run.path)
    if state is None:
        raise ValueError(f"run {run.name} was never sent to MLflow: its folder has no tracking state")
    uri = redact_uri(state.uri)
    if not state.run_id:
        return TrackingFacts(uri=uri, message=state.problem)
    try:
        client = connect(state.uri)
        found = client.get_run(state.run_id)
        points = client.get_metric_history(state.run_id, _LOSS)
    except STORE_ERRORS as error:
        return TrackingFacts(uri=uri, message=summarize(error))
    last = max((one.step for one in points), default=0)
    return TrackingFacts(uri=uri, run_id=state.run_id, status=found.info.status, last_step=last)
