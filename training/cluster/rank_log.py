"""The log of one rank, out of the logs of the job's worker pods.

Every rank writes its records as JSON lines into its run's folder and, in a pod, to the container's standard output too
(`training.logs`). So what a rank wrote is read by the right to see a pod's log; no `exec` is needed. Which pod a rank is in
is not asked: after a restart it may be another one, and the lines say whose they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from platform_charts.jobs.scheduling import JOB_LABEL
from training.cluster import places
from training.cluster.api import Api
from training.cluster.errors import ApiError, ClusterRefusedError

_NOT_STARTED = 400
"""What the API server answers for a container that has not begun."""


def rank_log(api: Api, namespace: str, job: str, rank: int) -> list[str]:
    """The JSON lines of a rank so far, of all its attempts that the job's pods remember, in the order of their time.

    Raises:
        ClusterRefusedError: no pod of the job is there, or none has a line of that rank; says which ranks have written.
    """
    labels = f"{JOB_LABEL}={job},ray.io/node-type=worker"
    pods = [pod["metadata"]["name"] for pod in api.items(places.pods(namespace), labels=labels)]
    if not pods:
        raise ClusterRefusedError(
            f"job {job} has no worker pods: they have not started yet, or went when it ended, and their logs with them",
            remedy=f"the log of rank {rank} stays in the run's folder, logs/rank-{rank}.jsonl; "
            "make logs without RANK prints the driver's",
        )
    records = [record for pod in pods for record in _records(api, namespace, pod)]
    found = sorted((fields["time"], line) for fields, line in records if fields["rank"] == rank)
    if not found:
        ranks = sorted({fields["rank"] for fields, _ in records if fields["rank"] is not None})
        raise ClusterRefusedError(
            f"none of the {len(pods)} worker pods of job {job} has a line of rank {rank}",
            remedy=f"ranks that have written: {', '.join(map(str, ranks)) or 'none yet'}",
        )
    return [line for _, line in found]


def _records(api: Api, namespace: str, pod: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Records of ranks in a pod's log, parsed and as they stand; what Ray prints beside them is left out."""
    try:
        for line in api.lines(places.log(namespace, pod), {"container": places.WORKER_CONTAINER}):
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
