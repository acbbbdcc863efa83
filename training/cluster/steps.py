"""Steps that the commands share: which stack, team and job they are about, and the submission."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from infra.kube.errors import ApiError
from infra.kube.stack_connection import connect
from infra.spec.manifest import Manifest, api_object
from infra.spec.section import did_you_mean
from training.cluster import job_manifest
from training.cluster.code_packages import check_derived
from training.cluster.context import ClusterContext, read_target, team_named
from training.cluster.job_table import of_readable_teams
from training.cluster.lent_quota import gated_if_lent
from training.cluster.objects import RAY_JOB
from training.cluster.registry import check_images
from training.cluster.retention import delete_expired
from training.cluster.submission import submit
from training.errors import SettingsError
from training.options.cluster import ClusterOptions
from training.options.runs import CostOptions, LogsOptions, ProfileOptions, ResizeOptions, StopOptions
from training.options.training import ResumeOptions

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi


JobOptions: TypeAlias = CostOptions | LogsOptions | ProfileOptions | ResizeOptions | ResumeOptions | StopOptions
"""Options of the commands on one job."""


def context_of(arguments: ClusterOptions) -> ClusterContext:
    """Stack and team of a command.

    Raises:
        PlatformError: the stack has no outputs, they are not this release's, or the team is unknown.
    """
    assert arguments.env is not None, "without --env the command is this machine's"
    target = read_target(arguments.env, file=arguments.outputs, environment=os.environ)
    return ClusterContext(env=arguments.env, target=target, team=team_named(target.outputs, arguments.team))


def contexts_of(arguments: ClusterOptions) -> tuple[ClusterContext, ...]:
    """The stack with each team that a command on something that exists may mean: the given one, else every one.

    Raises:
        PlatformError: like `context_of`.
    """
    assert arguments.env is not None, "without --env the command is this machine's"
    target = read_target(arguments.env, file=arguments.outputs, environment=os.environ)
    has_choice = arguments.team is None and bool(target.outputs.teams)
    teams = target.outputs.teams if has_choice else [team_named(target.outputs, arguments.team)]
    return tuple(ClusterContext(env=arguments.env, target=target, team=team) for team in teams)


def context_with(
    contexts: Sequence[ClusterContext], what: str, names: Callable[[ClusterContext], list[str]], *, name: str | None
) -> ClusterContext:
    """The context of the only team that has an object of that name; without a name, that has any.

    Args:
        contexts: the teams to search. A single one is returned whether it has the object or not.
        what: kind of the object in words, e.g. `job`.
        names: the names of a team's objects.
        name: the object.

    Raises:
        SettingsError: several teams have it, or none.
        ApiError: this user may read none of the teams.
    """
    if len(contexts) == 1:
        return contexts[0]
    by_team = {context.team.name: context for context in contexts}
    found = of_readable_teams([context.team for context in contexts], lambda team: names(by_team[team.name]))
    having = [team for team, known in found.items() if (name in known if name else known)]
    if len(having) == 1:
        return by_team[having[0]]
    if having:
        teams = f"{len(having)} teams"
        raise SettingsError(
            f"{f'{what} {name} exists in {teams}' if name else f'{teams} have {what}s'}: {', '.join(having)}",
            remedy="choose one with TEAM=… (--team)",
        )
    owners = f"teams {', '.join(found)}"
    command = "schedules" if what == "schedule" else "jobs"
    again = f"make {command} ENV={contexts[0].env} lists the {command}"
    if name is None:
        raise SettingsError(f"{owners} have no {what}", remedy=again)
    meant = did_you_mean(name, [one for known in found.values() for one in known])
    if what == "job":
        again += "; make logs with TEAM=… finds the log of one that is gone"
    raise SettingsError(f"{what} {name}: no such {what} of {owners}", remedy=meant or again)


def connection_of(context: ClusterContext, arguments: ClusterOptions) -> KubernetesApi:
    """The connection of a command to its cluster; raises like `connect`."""
    return connect(context.target.outputs, kubeconfig=arguments.kubeconfig, environment=os.environ)


def job_context(
    arguments: JobOptions,
) -> tuple[ClusterContext, KubernetesApi]:
    """Context and connection of a command on one job, whose team need not be named if only one has it."""
    contexts = contexts_of(arguments)
    api = connection_of(contexts[0], arguments)

    def names(context: ClusterContext) -> list[str]:
        return [str(one["metadata"]["name"]) for one in api.items(*RAY_JOB, namespace=context.team.namespace)]

    return context_with(contexts, "job", names, name=arguments.run), api


def named_job(arguments: JobOptions) -> tuple[ClusterContext, KubernetesApi, Manifest]:
    """Context, connection and job of a command on one job."""
    context, api = job_context(arguments)
    return context, api, job_named(api, context, arguments.run)


def job_named(api: KubernetesApi, context: ClusterContext, name: str | None) -> Manifest:
    """The job of that name, or the team's newest.

    Raises:
        SettingsError: the job does not exist; names the nearest.
    """
    namespace = context.team.namespace
    if name is not None:
        found = api.read(api_object(*RAY_JOB, name, namespace=namespace))
        if found is not None:
            return found
    known = sorted(api.items(*RAY_JOB, namespace=namespace), key=lambda one: str(one["metadata"]["creationTimestamp"]))
    if name is None and known:
        return known[-1]
    if name is None:
        raise SettingsError(f"team {context.team.name} has no job", remedy=f"submit one: make train ENV={context.env}")
    again = f"make jobs ENV={context.env} lists the jobs; make train NAME={name} resumes a run whose job was deleted"
    meant = did_you_mean(name, [one["metadata"]["name"] for one in known])
    raise SettingsError(f"job {name}: no such job in namespace {namespace}", remedy=meant or again)


def submit_job(
    api: KubernetesApi, context: ClusterContext, manifests: tuple[Manifest, ...], *, code: Path | None = None
) -> Manifest:
    """Submit a job, after its image was looked up and expired jobs were deleted; returns the RayJob.

    Args:
        api: the cluster.
        context: stack and team.
        manifests: the objects of the job.
        code: the user's code folder, whose packages the image must have; None without.

    Raises:
        RefusedError: the image does not exist or does not fit, the name is taken, or the cluster refuses an object.
    """
    (rendered,) = [one for one in manifests if one["kind"] == "RayJob"]
    check_images(context.target.outputs, job_manifest.image_of(rendered))
    check_derived(rendered, code, context)
    _delete_expired(api, context)
    ready = gated_if_lent(api, rendered, queue=context.team.name)
    made = submit(api, [ready if one is rendered else one for one in manifests], env=context.env)
    print(
        f"job {made['metadata']['name']} submitted to queue {context.team.queue} of {context.env}: {job_manifest.describe_size(made)}"
    )
    return made


def _delete_expired(api: KubernetesApi, context: ClusterContext) -> None:
    try:
        deleted = delete_expired(api, context.team.namespace, now=datetime.now(UTC))
    except ApiError as error:  # does not fail the submission; the next one retries
        print(f"warning: expired jobs were not deleted: {error.args[0]}", file=sys.stderr)
        return
    if deleted:
        print(f"expired jobs deleted: {', '.join(deleted)}")
