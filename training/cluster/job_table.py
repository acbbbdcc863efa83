"""The table of a cluster's jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from infra.kube.errors import ApiError
from infra.spec.manifest import Manifest
from infra.spec.outputs import TeamOutput
from observability.quantities import duration
from platform_charts.jobs.scheduling import JOB_LABEL
from training.cluster.job_manifest import gpus, worker_pods
from training.cluster.objects import POD, RAY_JOB, WORKLOAD, one_line
from training.cluster.state import Observation, state_of
from training.cluster.watch import queue_positions

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_HEADINGS = ("job", "team", "state", "queue", "workers", "GPUs", "age", "reason")
_LONGEST_REASON = 100
_ENDED_JOBS = (
    "Ended jobs hold no nodes. make resume continues one; it is deleted some days after its end (--keep-days), "
    "or now: kubectl -n NAMESPACE delete rayjob JOB"
)


def observe_jobs(api: KubernetesApi, namespace: str) -> list[Observation]:
    """Every job of a namespace, newest first, with a constant number of requests.

    Raises:
        ApiError: the jobs may not be listed.
    """
    jobs = api.items(*RAY_JOB, namespace=namespace)
    workloads = api.items(*WORKLOAD, namespace=namespace)
    positions = queue_positions(api, namespace, workloads)
    workload_by_job = {
        owner["uid"]: workload for workload in workloads for owner in workload["metadata"].get("ownerReferences", ())
    }
    pods: dict[str, list[Manifest]] = defaultdict(list)
    for pod in api.items(*POD, namespace=namespace, labels=JOB_LABEL):
        pods[pod["metadata"]["labels"][JOB_LABEL]].append(pod)
    seen = []
    for job in sorted(jobs, key=lambda one: str(one["metadata"]["creationTimestamp"]), reverse=True):
        workload = workload_by_job.get(job["metadata"]["uid"])
        position = None if workload is None else positions.get(workload["metadata"]["name"])
        seen.append(Observation(job=job, workload=workload, position=position, pods=pods[job["metadata"]["name"]]))
    return seen


def observe_teams(api: KubernetesApi, teams: Sequence[TeamOutput]) -> dict[str, list[Observation]]:
    """The jobs of the teams whose jobs this user may list.

    Raises:
        ApiError: a team's namespace does not exist.
    """
    found: dict[str, list[Observation]] = {}
    refusal: ApiError | None = None
    for team in teams:
        try:
            found[team.name] = observe_jobs(api, team.namespace)
        except ApiError as error:
            if error.code != 403:
                raise
            refusal = error
    if refusal is not None and not found:
        raise refusal
    return found


def job_table(jobs: Mapping[str, Sequence[Observation]], *, now: datetime) -> str:
    """One line per job: name, team, state, queue position, worker pods, GPUs, age and reason.

    Args:
        jobs: the jobs by team.
        now: the current time, with its zone.
    """
    rows = [_HEADINGS, *(_row(team, seen, now) for team, found in jobs.items() for seen in found)]
    if len(rows) == 1:
        return f"no jobs of {', '.join(jobs)}"
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if any(state_of(seen).is_over for found in jobs.values() for seen in found):
        lines.append(_ENDED_JOBS)
    return "\n".join(lines)


def _row(team: str, seen: Observation, now: datetime) -> tuple[str, ...]:
    assert seen.job is not None, "jobs are observed from a list"
    state = state_of(seen)
    created = datetime.fromisoformat(seen.job["metadata"]["creationTimestamp"])
    reason = one_line(state.reason, longest=_LONGEST_REASON)
    return (
        seen.job["metadata"]["name"],
        team,
        state.stage,
        "" if state.position is None else str(state.position),
        str(worker_pods(seen.job)),
        str(gpus(seen.job)),
        duration((now - created).total_seconds()),
        reason,
    )
