"""The commands of `training.cli` with `--env`: on a cluster."""

from __future__ import annotations

import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from infra.kube.errors import ApiError
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest, api_object
from infra.spec.section import did_you_mean
from platform_charts.jobs.capacity_end import refuse_beyond_capacity
from platform_charts.jobs.document import to_yaml
from platform_charts.jobs.rayjob import render_job
from training.cluster import control, job_manifest
from training.cluster.connection import connect
from training.cluster.context import ClusterContext, read_target, team_named
from training.cluster.follow import follow_to_exit
from training.cluster.job_manifest import JobOptions
from training.cluster.job_settings import for_cluster
from training.cluster.job_table import job_table, observe_teams
from training.cluster.objects import CONFIG_MAP, RAY_JOB
from training.cluster.rank_log import rank_log
from training.cluster.registry import check_image
from training.cluster.retention import delete_expired
from training.cluster.state import JobState, state_of
from training.cluster.submission import submit
from training.cluster.watch import JobWatch, workload_of
from training.config import load as configuration
from training.config.schema import TrainingSettings
from training.errors import ExitStatus, SettingsError
from training.options import (
    ClusterOptions,
    FollowOptions,
    JobsOptions,
    JobYamlOptions,
    LogsOptions,
    ResumeOptions,
    StopOptions,
    SubmissionOptions,
    TrainOptions,
)

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi


def train(arguments: TrainOptions) -> ExitStatus:
    """Submit a job, follow it to its end, and mirror its exit status."""
    context, manifests, settings = _rendered(arguments)
    if arguments.print_config:
        print(configuration.render(settings), end="")
        return ExitStatus.DONE
    return _submit(_connect(context, arguments), context, manifests, arguments)


def job(arguments: JobYamlOptions) -> ExitStatus:
    """Write the objects of a job as YAML, without a cluster."""
    _, manifests, _ = _rendered(arguments)
    text = to_yaml(manifests)
    if arguments.out is None or arguments.out == "-":
        sys.stdout.write(text)
        return ExitStatus.DONE
    try:
        Path(arguments.out).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"--out {arguments.out}: cannot be written: {error.strerror}") from error
    print(f"{arguments.out}: submit it with kubectl apply --server-side -f {arguments.out}")
    return ExitStatus.DONE


def jobs(arguments: JobsOptions) -> ExitStatus:
    """Print the jobs of a team, or of every team whose jobs this user may list."""
    assert arguments.env is not None, "without --env the command is this machine's"
    target = read_target(arguments.env, file=arguments.outputs, environment=os.environ)
    api = connect(target.outputs, kubeconfig=arguments.kubeconfig, environment=os.environ)
    teams = target.outputs.teams if arguments.team is None else (team_named(target.outputs, arguments.team),)
    print(job_table(observe_teams(api, teams), now=datetime.now(UTC)))
    return ExitStatus.DONE


def logs(arguments: LogsOptions) -> ExitStatus:
    """Print the driver's log and follow it to the job's end, or print what a rank or a pod has logged so far."""
    context, api, found = _named_job(arguments)
    if arguments.rank is not None:
        for line in rank_log(api, context.team.namespace, found["metadata"]["name"], arguments.rank):
            print(line)
        return ExitStatus.DONE
    if arguments.pod is not None:
        for line in api.log(arguments.pod, namespace=context.team.namespace):
            print(line)
        return ExitStatus.DONE
    return follow_to_exit(api, context, found, stop_on_interrupt=False)


def stop(arguments: StopOptions) -> ExitStatus:
    """Save the state of a job, release its nodes, and wait for both."""
    context, api, found = _named_job(arguments)
    name = found["metadata"]["name"]
    state = _state(api, context, name)
    if state.is_over:
        raise RefusedError(
            f"job {name} is already {state.stage}: {state.reason}".rstrip(": "),
            remedy=f"resume it: {context.hint('resume', name)}",
        )
    control.stop(api, found)
    print(f"job {name} is saving its state and releasing its nodes; resume it: {context.hint('resume', name)}")
    if not arguments.detach:
        follow_to_exit(api, context, found, stop_on_interrupt=False)
    return ExitStatus.DONE


def resume(arguments: ResumeOptions) -> ExitStatus:
    """Resume a stopped job, or resubmit one that has ended, from its newest checkpoint."""
    context, api, found = _named_job(arguments)
    name = found["metadata"]["name"]
    state = _state(api, context, name)
    if not state.is_over:
        raise RefusedError(
            f"job {name} is {state.stage}, so there is nothing to resume",
            remedy=f"follow it: {context.hint('logs', name)}",
        )
    is_suspended = (found.get("status") or {}).get("jobDeploymentStatus") in {None, "", "Suspended"}
    if is_suspended and not arguments.set and not _options(arguments).given() and workload_of(api, found) is not None:
        control.reactivate(api, found)
        print(f"job {name} is queued again")
        return _finish(api, context, found, arguments)
    name_of_settings = job_manifest.settings_name(found)
    manifests = _rendered_again(api, context, found, arguments)
    control.remove(api, found, name_of_settings)
    return _submit(api, context, manifests, arguments)


def _rendered(
    arguments: TrainOptions | JobYamlOptions,
) -> tuple[ClusterContext, tuple[Manifest, ...], TrainingSettings]:
    """The job that the command line describes; its settings are checked before the stack is read."""
    written = configuration.load_settings(
        arguments.config or ["digits"], overrides=arguments.set, flags=arguments.flags(), environment={}
    )
    context = _context(arguments)
    settings = for_cluster(written, context.target.outputs, now=datetime.now(UTC))
    return context, _render(settings, _options(arguments), context), settings


def _render(settings: TrainingSettings, options: JobOptions, context: ClusterContext) -> tuple[Manifest, ...]:
    request = job_manifest.request_of(settings, team=context.team.name, options=options)
    refuse_beyond_capacity(request, context.target, now=datetime.now(UTC))
    return render_job(request, context.target)


def _rendered_again(
    api: KubernetesApi, context: ClusterContext, found: Manifest, arguments: ResumeOptions
) -> tuple[Manifest, ...]:
    """The same job as this release renders it, with its settings and the changes of the command line."""
    name = job_manifest.settings_name(found)
    kept = api.read(api_object(*CONFIG_MAP, name, namespace=context.team.namespace))
    if kept is None:
        raise RefusedError(
            f"job {found['metadata']['name']} has lost its settings, ConfigMap {context.team.namespace}/{name}",
            remedy=f"submit it again: make train ENV={context.env} NAME={found['metadata']['name']} CONFIG=…",
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"{name}.yaml")
        file.write_text(job_manifest.settings_text(kept), encoding="utf-8")
        settings = configuration.load_settings([file], overrides=arguments.set, environment={})
    return _render(settings, _options(arguments).or_else(job_manifest.options_of(found)), context)


def _submit(
    api: KubernetesApi, context: ClusterContext, manifests: tuple[Manifest, ...], arguments: FollowOptions
) -> ExitStatus:
    (rendered,) = [one for one in manifests if one["kind"] == "RayJob"]
    unchecked = check_image(job_manifest.image_of(rendered))
    if unchecked:
        print(f"warning: the image was not checked in the registry: {unchecked}", file=sys.stderr)
    _delete_expired(api, context)
    made = submit(api, manifests, env=context.env)
    print(
        f"job {made['metadata']['name']} submitted to queue {context.team.queue} of {context.env}: {job_manifest.describe_size(made)}"
    )
    return _finish(api, context, made, arguments)


def _delete_expired(api: KubernetesApi, context: ClusterContext) -> None:
    try:
        deleted = delete_expired(api, context.team.namespace, now=datetime.now(UTC))
    except ApiError as error:  # does not fail the submission; the next one retries
        print(f"warning: expired jobs were not deleted: {error.args[0]}", file=sys.stderr)
        return
    if deleted:
        print(f"expired jobs deleted: {', '.join(deleted)}")


def _finish(api: KubernetesApi, context: ClusterContext, made: Manifest, arguments: FollowOptions) -> ExitStatus:
    if not arguments.detach:
        return follow_to_exit(api, context, made, stop_on_interrupt=arguments.stop_on_interrupt)
    name = made["metadata"]["name"]
    for command in ("logs", "stop"):
        print(f"  {command:<5} {context.hint(command, name)}")
    return ExitStatus.DONE


def _context(arguments: ClusterOptions) -> ClusterContext:
    assert arguments.env is not None, "without --env the command is this machine's"
    target = read_target(arguments.env, file=arguments.outputs, environment=os.environ)
    return ClusterContext(env=arguments.env, target=target, team=team_named(target.outputs, arguments.team))


def _connect(context: ClusterContext, arguments: ClusterOptions) -> KubernetesApi:
    return connect(context.target.outputs, kubeconfig=arguments.kubeconfig, environment=os.environ)


def _options(arguments: SubmissionOptions) -> JobOptions:
    return JobOptions(
        group=arguments.group,
        priority=arguments.priority,
        deadline_hours=arguments.deadline_hours,
        restarts=arguments.restarts,
        keep_days=arguments.keep_days,
    )


def _named_job(arguments: LogsOptions | StopOptions | ResumeOptions) -> tuple[ClusterContext, KubernetesApi, Manifest]:
    """Context, connection and job of a command on one job."""
    context = _context(arguments)
    api = _connect(context, arguments)
    return context, api, _job_named(api, context, arguments.run)


def _job_named(api: KubernetesApi, context: ClusterContext, name: str | None) -> Manifest:
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


def _state(api: KubernetesApi, context: ClusterContext, name: str) -> JobState:
    return state_of(JobWatch(api, namespace=context.team.namespace, name=name).observe())
