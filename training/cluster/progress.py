"""How far the running jobs are, from the ends of their drivers' logs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from infra.kube.errors import ApiError
from infra.spec.manifest import Manifest
from platform_charts.jobs.progress import SUBMITTER_CONTAINER, TAIL_LINES, Progress, newest_progress
from training.cluster.state import Observation, state_of

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_SUBMITTER_LABEL = "batch.kubernetes.io/job-name"


def read_progress(api: KubernetesApi, jobs: Iterable[Observation]) -> dict[str, Progress]:
    """The newest progress of each running job, by the job's uid, with one request per running job.

    A job is left out whose log has none yet, or cannot be read.

    Raises:
        ConnectionLostError: the API server does not answer.
    """
    found = {}
    for seen in jobs:
        submitter = _submitter(seen)
        if seen.job is not None and submitter is not None and state_of(seen).stage == "running":
            progress = _read(api, submitter)
            if progress is not None:
                found[seen.job["metadata"]["uid"]] = progress
    return found


def _submitter(seen: Observation) -> Manifest | None:
    """The newest pod that prints the driver's log."""
    pods = [pod for pod in seen.pods if _SUBMITTER_LABEL in pod["metadata"].get("labels", {})]
    return max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), default=None)


def _read(api: KubernetesApi, submitter: Manifest) -> Progress | None:
    metadata = submitter["metadata"]
    lines = api.log(metadata["name"], namespace=metadata["namespace"], container=SUBMITTER_CONTAINER, tail=TAIL_LINES)
    try:
        return newest_progress(lines)
    except ApiError:
        return None
