"""`cost --env`: what a job, or each job of a team, has cost so far."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from infra.kube.errors import ApiError
from infra.kube.stack_connection import connect
from infra.spec.manifest import Manifest
from observability.cost import PrintedCost, find_printed_cost
from observability.quantities import money, percent
from platform_charts.jobs.progress import SUBMITTER_CONTAINER
from platform_charts.jobs.request import Target
from training.cluster.context import read_target, team_named
from training.cluster.job_cost import Evidence, Holding, JobCost, job_cost
from training.cluster.job_manifest import gpus
from training.cluster.job_table import observe_teams, text_table
from training.cluster.state import Observation, state_of
from training.cluster.steps import named_job
from training.cluster.watch import JobWatch, watch_of
from training.errors import ExitStatus
from training.options.runs import CostOptions

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

_UNKNOWN = "unknown"
_SINCE: Mapping[Evidence, str] = {
    "pods": "since its pods got their nodes",
    "admission": "from its admission by the queue, because its pods are gone",
    "nothing": "",
}
_LAST_LINES = 50
"""Lines of a driver's log among which that with the cost is: after it come the paths of the results."""


def cost(arguments: CostOptions) -> ExitStatus:
    """Print the cost of one job, or, without a name, of all jobs of a team or of every team that this user may read."""
    if arguments.run is None:
        return _cost_of_teams(arguments)
    context, api, found = named_job(arguments)
    watch = watch_of(api, context, found["metadata"]["name"])
    seen = watch.observe()
    of_job = job_cost(seen, context.target, now=datetime.now(UTC))
    print("\n".join(_lines(seen, of_job, _printed_cost(api, watch))))
    return ExitStatus.DONE


def _cost_of_teams(arguments: CostOptions) -> ExitStatus:
    assert arguments.env is not None, "without --env the command is this machine's"
    target = read_target(arguments.env, file=arguments.outputs, environment=os.environ)
    api = connect(target.outputs, kubeconfig=arguments.kubeconfig, environment=os.environ)
    teams = target.outputs.teams if arguments.team is None else (team_named(target.outputs, arguments.team),)
    print(cost_table(observe_teams(api, teams), target, now=datetime.now(UTC)))
    return ExitStatus.DONE


def cost_table(jobs: Mapping[str, Sequence[Observation]], target: Target, *, now: datetime) -> str:
    """One line per job and the sum of each team; jobs that were deleted are in neither.

    Args:
        jobs: the jobs by team.
        target: the stack.
        now: the current time, with its zone.
    """
    rows: list[tuple[str, ...]] = [("job", "team", "state", "GPUs", "GPU-hours", "dollars", "idle")]
    sums: list[str] = []
    notes: list[str] = []
    for team, found in jobs.items():
        total, unknown = 0.0, 0
        for seen in found:
            of_job = job_cost(seen, target, now=now)
            rows.append(_row(team, seen, of_job))
            notes += of_job.notes
            total, unknown = total + (of_job.dollars or 0.0), unknown + (of_job.dollars is None)
        without = f", without {unknown} job{'s' * (unknown > 1)} at an unknown price" if unknown else ""
        sums.append(f"{team}: {money(total)} for {len(found)} job{'s' * (len(found) != 1)}{without}")
    if len(rows) == 1:
        return f"no jobs of {', '.join(jobs)}"
    return "\n".join((text_table(rows), *sums, *(f"  {note}" for note in dict.fromkeys(notes))))


def _row(team: str, seen: Observation, of_job: JobCost) -> tuple[str, ...]:
    assert seen.job is not None, "jobs are observed from a list"
    workers = [one for one in of_job.holdings if one.role == "worker"]
    count = gpus(seen.job)
    hours = sum(one.seconds / one.count * count for one in workers) / 3600
    return (
        seen.job["metadata"]["name"],
        team,
        state_of(seen).stage,
        str(count),
        f"{hours:.2f}",
        _dollars(of_job.dollars),
        "" if of_job.idle_share is None else percent(of_job.idle_share),
    )


def _lines(seen: Observation, of_job: JobCost, printed: PrintedCost | None) -> Iterator[str]:
    assert seen.job is not None, "the job was found"
    yield f"job {seen.job['metadata']['name']}: {state_of(seen).stage}"
    if not of_job.holdings:
        yield "  it has held no node so far, which costs nothing"
        return
    rows = [_holding(one) for one in of_job.holdings]
    yield from (f"  {line}" for line in text_table(rows).splitlines())
    yield f"  cost   {_dollars(of_job.dollars)}, {_SINCE[of_job.evidence]}"
    if of_job.idle_share is not None:
        idle = "" if of_job.dollars is None else f"{money(of_job.idle_share * of_job.dollars)}, "
        yield f"  idle   {idle}{percent(of_job.idle_share)} of the time: no driver ran, as while pods start and end"
    if printed is not None:
        share = percent(printed.productive_share)
        yield f"  run    {money(printed.dollars)}, {share} of it productive, as its drivers counted it, those of earlier jobs too"
    yield from (f"  {note}" for note in of_job.notes)


def _holding(one: Holding) -> tuple[str, ...]:
    price = one.price.usd_per_hour
    return (
        f"{one.count} {one.role}{'s' * (one.count != 1)}",
        f"on {one.price.instance_type or _UNKNOWN}",
        _UNKNOWN if price is None else f"{money(price)} an hour each",
        f"{one.seconds / 3600:.2f} hours",
        _dollars(one.dollars),
    )


def _dollars(amount: float | None) -> str:
    return _UNKNOWN if amount is None else money(amount)


def _printed_cost(api: KubernetesApi, watch: JobWatch) -> PrintedCost | None:
    """What the driver has printed at its end; None before, and where its log is gone."""
    submitter = watch.submitter()
    return None if submitter is None else find_printed_cost(_last_lines(api, submitter))


def _last_lines(api: KubernetesApi, submitter: Manifest) -> Iterator[str]:
    metadata = submitter["metadata"]
    try:
        yield from api.log(
            metadata["name"], namespace=metadata["namespace"], container=SUBMITTER_CONTAINER, tail=_LAST_LINES
        )
    except ApiError:  # its container has not started, or the node is gone
        return
