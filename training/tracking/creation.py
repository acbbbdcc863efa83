"""Creates experiments and runs in MLflow, once each: another process may do the same, and this one may have been killed right after."""

from __future__ import annotations

from collections.abc import Mapping

from training.tracking import payload
from training.tracking.client import MlflowException, mlflow
from training.tracking.locations import embedded_artifacts, embedded_uri

_RUN_KEY = "run_key"
_NO_TAGS: Mapping[str, str] = {}


def get_or_create_experiment(client: mlflow.MlflowClient, name: str, *, uri: str) -> str:
    """Id of the experiment of a name.

    Args:
        client: of the store.
        name: of the experiment.
        uri: of the store.
    """
    existing = client.get_experiment_by_name(name)
    if existing is not None:
        return str(existing.experiment_id)
    # A server has its own artifact location; the embedded store would default to `mlruns` in the current folder.
    location = str(embedded_artifacts()) if uri == embedded_uri() else None
    try:
        return str(client.create_experiment(name, artifact_location=location))
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
        return str(client.get_experiment_by_name(name).experiment_id)


def get_or_create_run(
    client: mlflow.MlflowClient,
    experiment_id: str,
    *,
    key: str,
    name: str,
    started: float,
    tags: Mapping[str, str] = _NO_TAGS,
) -> str:
    """Id of the run with a key.

    Args:
        client: of the store.
        experiment_id: its experiment.
        key: random text that identifies it.
        name: for people.
        started: Unix time.
        tags: of a run that is created.
    """
    found = client.search_runs([experiment_id], f"tags.{_RUN_KEY} = '{key}'", max_results=1)
    if found:
        return str(found[0].info.run_id)
    run = client.create_run(
        experiment_id,
        start_time=payload.milliseconds(started),
        run_name=name,
        tags={_RUN_KEY: key, **tags},
    )
    return str(run.info.run_id)
