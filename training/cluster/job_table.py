"""The table of a cluster's jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from infra.kube.errors import ApiError
from infra.spec.manifest import Manifest
from infra.spec.outputs import TeamOutput
from observability.quantities import duration
from platform_charts.jobs.progress import Progress
from platform_charts.jobs.scheduling import JOB_LABEL
from training.cluster.job_manifest import admitted_group, gpus, worker_pods
from training.cluster.objects import POD, RAY_JOB, WORKLOAD, current_workload, one_line
from training.cluster.state import Observation, state_of
from training.cluster.watch import queue_positions

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

T = TypeVar("T")

_HEADINGS = ("job", "team", "state", "queue", "workers", "GPUs", "group", "age", "progress", "left", "reason")
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
    workloads_by_job: dict[str, list[Manifest]] = defaultdict(list)
    for workload in workloads:
        for owner in workload["metadata"].get("ownerReferences", ()):
            workloads_by_job[owner["uid"]].append(workload)
    pods: dict[str, list[Manifest]] = defaultdict(list)
    for pod in api.items(*POD, namespace=namespace, labels=JOB_LABEL):
        pods[pod["metadata"]["labels"][JOB_LABEL]].append(pod)
    seen = []
    for job in sorted(jobs, key=lambda one: str(one["metadata"]["creationTimestamp"]), reverse=True):
        counts = current_workload(workloads_by_job[job["metadata"]["uid"]])
        position = None if counts is None else positions.get(counts["metadata"]["name"])
        seen.append(Observation(job=job, workload=counts, position=position, pods=pods[job["metadata"]["name"]]))
    return seen


def observe_teams(api: KubernetesApi, teams: Sequence[TeamOutput]) -> dict[str, list[Observation]]:
    """The jobs of the teams whose jobs this user may list. Raises like `of_readable_teams`."""
    return of_readable_teams(teams, lambda team: observe_jobs(api, team.namespace))


def of_readable_teams(teams: Sequence[TeamOutput], read: Callable[[TeamOutput], list[T]]) -> dict[str, list[T]]:
    """What `read` finds of each team, by team; teams that this user may not read are left out.

    Raises:
        ApiError: this user may read no team, or a request fails for another reason.
    """
    found: dict[str, list[T]] = {}
    refusal: ApiError | None = None
    for team in teams:
        try:
            found[team.name] = read(team)
        except ApiError as error:
            if error.code != 403:
                raise
            refusal = error
    if refusal is not None and not found:
        raise refusal
    return found


def job_table(
    jobs: Mapping[str, Sequence[Observation]], *, now: datetime, progress: Mapping[str, Progress] | None = None
) -> str:
    """One line per job: name, team, state, queue position, worker pods, GPUs, node group, age, progress, time left and reason.

    Args:
        jobs: the jobs by team.
        now: the current time, with its zone.
        progress: how far the running jobs are, by uid.
    """
    known = progress or {}
    rows = [_HEADINGS, *(_row(team, seen, now, known) for team, found in jobs.items() for seen in found)]
    if len(rows) == 1:
        return f"no jobs of {', '.join(jobs)}"
    table = text_table(rows)
    has_ended = any(state_of(seen).is_over for found in jobs.values() for seen in found)
    return f"{table}\n{_ENDED_JOBS}" if has_ended else table


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows in columns of equal width; the first row is the headings."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _row(team: str, seen: Observation, now: datetime, known: Mapping[str, Progress]) -> tuple[str, ...]:
    assert seen.job is not None, "jobs are observed from a list"
    state = state_of(seen)
    created = datetime.fromisoformat(seen.job["metadata"]["creationTimestamp"])
    reason, progress = one_line(state.reason, longest=_LONGEST_REASON), known.get(seen.job["metadata"].get("uid", ""))
    return (
        seen.job["metadata"]["name"],
        team,
        state.stage,
        "" if state.position is None else str(state.position),
        str(worker_pods(seen.job)),
        str(gpus(seen.job)),
        admitted_group(seen.workload),
        duration((now - created).total_seconds()),
        "" if progress is None else str(progress),
        "" if progress is None else progress.left,
        reason,
    )
