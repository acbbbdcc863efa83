"""The schedules of a team: created, paused, deleted, and listed with their next and last job."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from infra.spec.errors import RefusedError, SettingsError
from infra.spec.manifest import Manifest
from infra.spec.outputs import TeamOutput
from infra.spec.section import did_you_mean
from platform_charts.jobs.schedule import SCHEDULE_LABEL
from training.cluster.cron import parse_cron, zone_named
from training.cluster.job_table import observe_jobs, of_readable_teams, text_table
from training.cluster.objects import CONFIG_MAP
from training.cluster.state import Observation, state_of

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi

CRON_JOB = ("batch/v1", "CronJob")

_HEADINGS = ("schedule", "team", "times", "zone", "concurrency", "next", "last", "job", "result")
_MINUTE = "%Y-%m-%d %H:%M UTC"
_OCCURRENCE = "-%Y%m%d-%H%M"
"""As `platform_charts.images.job_schedule` names the jobs."""


class Schedule(NamedTuple):
    """A schedule and its newest job.

    Attributes:
        cron_job: the CronJob.
        newest: its newest job; None if there is none, or it was deleted.
    """

    cron_job: Manifest
    newest: Observation | None


def put_schedule(api: KubernetesApi, manifests: Sequence[Manifest], occurrence: Sequence[Manifest]) -> Manifest:
    """Create a schedule, or replace the one of that name; it owns its template.

    The objects of an occurrence go through the API server's admission first: nobody would see a refusal at night.

    Args:
        api: the cluster.
        manifests: the CronJob and its ConfigMap.
        occurrence: what each occurrence submits.

    Returns:
        the CronJob as the API server has it.

    Raises:
        RefusedError: the name belongs to another CronJob, or the cluster refuses an object.
    """
    (cron_job,) = [one for one in manifests if one["kind"] == "CronJob"]
    found = api.read(cron_job)
    if found is not None and SCHEDULE_LABEL not in found["metadata"].get("labels", {}):
        raise RefusedError(
            f"CronJob {cron_job['metadata']['namespace']}/{cron_job['metadata']['name']} exists and is not a schedule of "
            "this platform",
            remedy="choose another NAME",
        )
    for one in occurrence:
        api.apply(one, is_dry_run=True)
    made = api.apply(cron_job)
    owner = {key: made[key] for key in ("apiVersion", "kind")}
    owner |= {key: made["metadata"][key] for key in ("name", "uid")}
    for one in manifests:
        if one is not cron_job:
            api.apply({**one, "metadata": {**one["metadata"], "ownerReferences": [owner]}})
    _delete_replaced(api, made, {one["metadata"]["name"] for one in manifests})
    return made


def _delete_replaced(api: KubernetesApi, cron_job: Manifest, current: Collection[str]) -> None:
    """Delete the code that a schedule had before, unless a pod may still submit a job with it; then the next change does."""
    if (cron_job.get("status") or {}).get("active"):
        return
    metadata = cron_job["metadata"]
    labels = f"{SCHEDULE_LABEL}={metadata['name']}"
    for one in api.items(*CONFIG_MAP, namespace=metadata["namespace"], labels=labels):
        owners = {owner["uid"] for owner in one["metadata"].get("ownerReferences", ())}
        if metadata["uid"] in owners and one["metadata"]["name"] not in current:
            api.delete(one)


def schedule_names(api: KubernetesApi, namespace: str) -> list[str]:
    """The names of a namespace's schedules."""
    return [str(one["metadata"]["name"]) for one in _cron_jobs(api, namespace)]


def schedule_named(api: KubernetesApi, namespace: str, name: str | None) -> Manifest:
    """The CronJob of a schedule.

    Raises:
        SettingsError: no name, or no such schedule; names the nearest.
    """
    known = {one["metadata"]["name"]: one for one in _cron_jobs(api, namespace)}
    if name in known:
        return known[name]
    named = "no name of a schedule" if name is None else f"schedule {name}: no such schedule in namespace {namespace}"
    listed = f"schedules: {', '.join(known)}" if known else "the team has no schedule"
    raise SettingsError(named, remedy=(name and did_you_mean(name, list(known))) or listed)


def delete_schedule(api: KubernetesApi, cron_job: Manifest) -> None:
    """Delete a schedule with its template; the jobs that it has submitted stay."""
    api.delete(cron_job)


def pause_schedule(api: KubernetesApi, cron_job: Manifest) -> None:
    """Start no further job."""
    api.patch(cron_job, {"spec": {"suspend": True}})


def observe_schedules(api: KubernetesApi, teams: Sequence[TeamOutput]) -> dict[str, list[Schedule]]:
    """The schedules of the teams that this user may list, by team.

    Raises:
        ApiError: this user may list none.
    """

    def read(team: TeamOutput) -> list[Schedule]:
        newest = _newest(observe_jobs(api, team.namespace))
        return [Schedule(one, newest.get(one["metadata"]["name"])) for one in _cron_jobs(api, team.namespace)]

    return of_readable_teams(teams, read)


def schedule_table(schedules: Mapping[str, Sequence[Schedule]], *, now: datetime) -> str:
    """One line per schedule: name, team, times, rule, the next and the last time, the newest job and its result."""
    rows = [_row(team, one, now) for team, found in schedules.items() for one in found]
    return text_table((_HEADINGS, *rows)) if rows else f"no schedules of {', '.join(schedules)}"


def next_time(cron_job: Manifest, *, now: datetime) -> str:
    """When a schedule starts its next job."""
    spec = cron_job["spec"]
    if spec.get("suspend"):
        return "paused"
    try:
        found = parse_cron(spec["schedule"]).next_after(now, zone_named(spec.get("timeZone", "Etc/UTC")))
    except SettingsError:  # a form that only the controller knows, e.g. @every 1h
        return "?"
    return "never" if found is None else f"{found:{_MINUTE}}"


def _row(team: str, schedule: Schedule, now: datetime) -> tuple[str, ...]:
    cron_job, newest = schedule
    name, spec = cron_job["metadata"]["name"], cron_job["spec"]
    last = (cron_job.get("status") or {}).get("lastScheduleTime")
    due = None if last is None else datetime.fromisoformat(last).astimezone(UTC)
    job, result = "", ""
    if newest is not None and newest.job is not None:
        job, result = newest.job["metadata"]["name"], state_of(newest).stage
    if due is not None and job != f"{name}{due:{_OCCURRENCE}}":
        result = f"{result}; the last was skipped or waits in the queue".removeprefix("; ")
    return (
        name,
        team,
        spec["schedule"],
        spec.get("timeZone", ""),
        spec["concurrencyPolicy"].lower(),
        next_time(cron_job, now=now),
        "" if due is None else f"{due:{_MINUTE}}",
        job,
        result,
    )


def _newest(jobs: Sequence[Observation]) -> dict[str, Observation]:
    """The newest job of each schedule; `jobs` has the newest first."""
    found: dict[str, Observation] = {}
    for seen in jobs:
        assert seen.job is not None, "jobs are observed from a list"
        name = seen.job["metadata"].get("labels", {}).get(SCHEDULE_LABEL)
        if name is not None:
            found.setdefault(name, seen)
    return found


def _cron_jobs(api: KubernetesApi, namespace: str) -> list[Manifest]:
    return api.items(*CRON_JOB, namespace=namespace, labels=SCHEDULE_LABEL)
