"""The table of a cluster's jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from infra.spec.manifest import Manifest
from infra.spec.outputs import TeamOutput
from observability.quantities import duration
from platform_charts.jobs.scheduling import JOB_LABEL
from training.cluster import places
from training.cluster.api import Api
from training.cluster.conditions import one_line
from training.cluster.errors import ApiError
from training.cluster.rendering import gpus, worker_pods
from training.cluster.state import Observation, judge
from training.cluster.watch import places_of

_HEADINGS = ("job", "team", "state", "queue", "workers", "GPUs", "age", "reason")
_LONGEST_REASON = 100
_OF_ENDED = (
    "Ended jobs hold no nodes. make resume goes on with one; it goes by itself some days after its end (--keep-days), "
    "or now: kubectl -n NAMESPACE delete rayjob JOB"
)


def survey(api: Api, namespace: str) -> list[Observation]:
    """Every job of a namespace, the newest first, in a number of requests that does not grow with theirs.

    Raises:
        ApiError: the jobs may not be listed.
    """
    jobs = api.items(places.jobs(namespace))
    workloads = api.items(places.workloads(namespace))
    positions = places_of(api, namespace, workloads)
    workload_by_job = {
        owner["uid"]: workload for workload in workloads for owner in workload["metadata"].get("ownerReferences", ())
    }
    pods: dict[str, list[Manifest]] = defaultdict(list)
    for pod in api.items(places.pods(namespace), labels=JOB_LABEL):
        pods[pod["metadata"]["labels"][JOB_LABEL]].append(pod)
    seen = []
    for job in sorted(jobs, key=lambda one: str(one["metadata"]["creationTimestamp"]), reverse=True):
        workload = workload_by_job.get(job["metadata"]["uid"])
        position = None if workload is None else positions.get(workload["metadata"]["name"])
        seen.append(Observation(job=job, workload=workload, position=position, pods=pods[job["metadata"]["name"]]))
    return seen


def survey_teams(api: Api, teams: Sequence[TeamOutput]) -> dict[str, list[Observation]]:
    """The jobs of those teams whose jobs may be listed.

    Raises:
        ApiError: none may.
    """
    found: dict[str, list[Observation]] = {}
    refusal: ApiError | None = None
    for team in teams:
        try:
            found[team.name] = survey(api, team.namespace)
        except ApiError as error:
            if error.code != 403:
                raise
            refusal = error
    if refusal is not None and not found:
        raise refusal
    return found


def job_table(jobs: Mapping[str, Sequence[Observation]], *, now: datetime) -> str:
    """One line a job: name, team, state, place in the queue, worker pods, GPUs, age and reason.

    Args:
        jobs: the jobs by team.
        now: the time, with its zone.
    """
    rows = [_HEADINGS, *(_row(team, seen, now) for team, found in jobs.items() for seen in found)]
    if len(rows) == 1:
        return f"no jobs of {', '.join(jobs)}"
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    if any(judge(seen).is_over for found in jobs.values() for seen in found):
        lines.append(_OF_ENDED)
    return "\n".join(lines)


def _row(team: str, seen: Observation, now: datetime) -> tuple[str, ...]:
    assert seen.job is not None, "a survey is of jobs that are there"
    state = judge(seen)
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
