"""The log of one rank, from the logs of the job's worker pods.

Every rank writes its records as JSON lines into its run's folder and, in a pod, to the container's standard output too
(`training.logs`). So the permission to read a pod's log is enough; no `exec` is needed. All worker pods are read,
because a rank may move to another pod after a restart; each line names its rank.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from infra.kube.errors import ApiError
from infra.spec.errors import RefusedError
from platform_charts.jobs.scheduling import JOB_LABEL
from training.cluster.objects import POD, WORKER_CONTAINER

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_NOT_STARTED = 400
"""HTTP status that the API server answers for a container that has not started."""


class NoRankLogError(RefusedError):
    """No pod has a line of the rank."""


def rank_log(api: KubernetesApi, namespace: str, job: str, rank: int) -> list[str]:
    """The JSON lines that a rank has written so far, in all attempts that the job's pods have logs of, by time.

    Raises:
        NoRankLogError: the job has no worker pods, or none has a line of that rank; names the ranks that have written.
    """
    labels = f"{JOB_LABEL}={job},ray.io/node-type=worker"
    pods = [pod["metadata"]["name"] for pod in api.items(*POD, namespace=namespace, labels=labels)]
    if not pods:
        raise NoRankLogError(
            f"job {job} has no worker pods: they have not started yet, or were deleted with their logs when it ended",
            remedy=f"the log of rank {rank} stays in the run's folder, logs/rank-{rank}.jsonl; "
            "make logs without RANK prints the driver's log",
        )
    records = [record for pod in pods for record in _records(api, namespace, pod)]
    found = sorted((fields["time"], line) for fields, line in records if fields["rank"] == rank)
    if not found:
        ranks = sorted({fields["rank"] for fields, _ in records if fields["rank"] is not None})
        raise NoRankLogError(
            f"none of the {len(pods)} worker pods of job {job} has a line of rank {rank}",
            remedy=f"ranks that have written: {', '.join(map(str, ranks)) or 'none yet'}",
        )
    return [line for _, line in found]


def _records(api: KubernetesApi, namespace: str, pod: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The records of ranks in a pod's log, parsed and verbatim, without what Ray prints between them."""
    try:
        for line in api.log(pod, namespace=namespace, container=WORKER_CONTAINER):
            fields = _fields(line)
            if "rank" in fields and "time" in fields:
                yield fields, line
    except ApiError as error:
        if error.code != _NOT_STARTED:
            raise


def _fields(line: str) -> dict[str, Any]:
    if not line.startswith("{"):
        return {}
    try:
        fields = json.loads(line)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
