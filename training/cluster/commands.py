"""The commands of `training.cli` with `--env`: on a cluster."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from infra.kube.errors import ApiError
from infra.kube.stack_connection import connect
from infra.spec.cluster_names import SESSION_PREFIX
from infra.spec.errors import PlatformError, RefusedError
from infra.spec.manifest import Manifest, api_object
from infra.spec.output import writing
from platform_charts.jobs.capacity_end import lasting_capacity
from platform_charts.jobs.document import to_yaml
from platform_charts.jobs.elastic_size import place_any_job
from platform_charts.jobs.price import describe_choice
from platform_charts.jobs.progress import SUBMITTER_CONTAINER
from platform_charts.jobs.rayjob import is_command_job, is_search, render_job
from platform_charts.jobs.request import JobRequest
from training.cluster import command_jobs, control, job_manifest
from training.cluster.code_packages import require_image
from training.cluster.context import ClusterContext, read_target, team_named
from training.cluster.follow import follow_to_exit
from training.cluster.gone_logs import print_gone
from training.cluster.job_manifest import JobOptions
from training.cluster.job_settings import for_cluster
from training.cluster.job_table import job_table, observe_teams
from training.cluster.objects import CONFIG_MAP, WORKER_CONTAINER
from training.cluster.own_code import kept_code, packed
from training.cluster.progress import read_progress
from training.cluster.rank_log import NoRankLogError, rank_log
from training.cluster.sessions import cost_so_far
from training.cluster.shipped_query import LogQuery
from training.cluster.state import JobState, state_of
from training.cluster.steps import connection_of, context_of, job_context, job_named, named_job, submit_job
from training.cluster.watch import watch_of, workload_of
from training.code.archive import CodeArchive
from training.code.given import configurations, given_code, importable
from training.config import load as configuration
from training.config.schema import TrainingSettings
from training.errors import ExitStatus, SettingsError
from training.options.cluster import FollowOptions, SubmissionOptions
from training.options.runs import JobsOptions, LogsOptions, StopOptions
from training.options.scripts import CommandOptions
from training.options.training import JobYamlOptions, ResumeOptions, TrainOptions

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi


def train(arguments: TrainOptions) -> int:
    """Submit a job, follow it to its end, and mirror its exit status."""
    context, manifests, settings = _rendered(arguments)
    if arguments.print_config:
        print(configuration.render(settings), end="")
        return ExitStatus.DONE
    return submit(connection_of(context, arguments), context, manifests, arguments, code=arguments.code)


def job(arguments: JobYamlOptions) -> ExitStatus:
    """Write the objects of a job as YAML, without a cluster."""
    _, manifests, _ = _rendered(arguments)
    return write_yaml(manifests, arguments.out or "-")


def run(arguments: CommandOptions) -> int:
    """Submit a user's own command as a job and mirror its exit status, or write the objects of the job as YAML."""
    archive = given_code(arguments.code)
    command_jobs.check_command(arguments.cmd, archive)
    context = context_of(arguments)
    require_image(arguments.code, context, image=arguments.image)
    name = command_jobs.name_of(arguments, now=datetime.now(UTC))
    command = command_jobs.command_of(arguments)
    options = job_options(arguments)
    request = command.request(name, team=context.team.name, options=options, code=packed(archive))
    manifests = render_request(request, context)
    if arguments.out is not None:
        return write_yaml(manifests, arguments.out)
    return submit(connection_of(context, arguments), context, manifests, arguments, code=arguments.code)


def write_yaml(manifests: tuple[Manifest, ...], out: str) -> ExitStatus:
    """Write the objects of a job to a file; `-` is standard output."""
    text = to_yaml(manifests)
    if out == "-":
        sys.stdout.write(text)
        return ExitStatus.DONE
    with writing(Path(out)):
        Path(out).write_text(text, encoding="utf-8")
    print(f"{out}: submit it with kubectl apply --server-side -f {out}")
    return ExitStatus.DONE


def jobs(arguments: JobsOptions) -> ExitStatus:
    """Print the jobs of a team, or of every team whose jobs this user may list."""
    assert arguments.env is not None, "without --env the command is this machine's"
    target = read_target(arguments.env, file=arguments.outputs, environment=os.environ)
    api = connect(target.outputs, kubeconfig=arguments.kubeconfig, environment=os.environ)
    teams = target.outputs.teams if arguments.team is None else (team_named(target.outputs, arguments.team),)
    found = observe_teams(api, teams)
    progress = read_progress(api, (seen for of_team in found.values() for seen in of_team))
    print(job_table(found, now=datetime.now(UTC), progress=progress))
    return ExitStatus.DONE


def logs(arguments: LogsOptions) -> int:
    """Print the driver's log and follow it to the job's end, or print what a rank or a pod has logged so far.

    The log of a pod that is gone comes from where the stack ships logs to.
    """
    context, api = job_context(arguments)
    try:
        found = job_named(api, context, arguments.run)
    except SettingsError as missing:
        if arguments.run is None:
            raise
        print_gone(context, _gone(context, arguments, arguments.run), live=missing)
        return ExitStatus.DONE
    query = _gone(context, arguments, found["metadata"]["name"])
    if arguments.rank is None and arguments.pod is None:
        if _has_lost_its_log(api, context, query.job):
            _print_drivers_log(context, query)
        return follow_to_exit(api, context, found, stop_on_interrupt=False)
    try:
        for line in _live_lines(api, query, arguments):
            print(line)
    except NoRankLogError as gone:
        print_gone(context, query, live=gone)
    except ApiError as gone:
        if gone.code != HTTPStatus.NOT_FOUND:
            raise
        print_gone(context, query, live=gone)
    return ExitStatus.DONE


def _print_drivers_log(context: ClusterContext, query: LogQuery) -> None:
    """Print what the driver of a job that is over has logged; the job's state follows, so a failure is a warning."""
    try:
        print_gone(context, query, live=RefusedError(f"the driver's pod of job {query.job} is gone"))
    except PlatformError as error:
        print(f"warning: {error}", file=sys.stderr)


def _live_lines(api: KubernetesApi, query: LogQuery, arguments: LogsOptions) -> Iterable[str]:
    if arguments.rank is not None:
        return rank_log(api, query.namespace, query.job, arguments.rank)
    assert arguments.pod is not None, "without a rank a pod is asked for"
    return api.log(arguments.pod, namespace=query.namespace)


def _gone(context: ClusterContext, arguments: LogsOptions, job_name: str) -> LogQuery:
    """What to search for if the pods are gone: a rank's lines, a pod's, or the driver's."""
    container = WORKER_CONTAINER if arguments.rank is not None else SUBMITTER_CONTAINER
    return LogQuery(
        namespace=context.team.namespace,
        job=job_name,
        since=datetime.now(UTC) - timedelta(days=arguments.days),
        container=None if arguments.pod is not None else container,
        pod=arguments.pod,
        rank=arguments.rank,
    )


def _has_lost_its_log(api: KubernetesApi, context: ClusterContext, name: str) -> bool:
    """Whether the job is over, its driver's pod is deleted, and the stack ships logs."""
    if context.target.outputs.logs.destination == "none" or not job_state(api, context, name).is_over:
        return False
    return watch_of(api, context, name).submitter() is None


def stop(arguments: StopOptions) -> ExitStatus:
    """Save the state of a job, release its nodes, and wait for both."""
    context, api, found = named_job(arguments)
    name = found["metadata"]["name"]
    state = job_state(api, context, name)
    if state.is_over:
        raise RefusedError(
            f"job {name} is already {state.stage}: {state.reason}".rstrip(": "),
            remedy=f"resume it: {context.hint('resume', name)}",
        )
    control.stop(api, found)
    if name.startswith(SESSION_PREFIX):
        print(f"session {name} ends: {cost_so_far(found, now=datetime.now(UTC))}")
    elif is_command_job(found):
        again = f"start it again: {context.hint('resume', name)}"
        print(f"job {name}: its command gets SIGTERM on every node, then the nodes are released; {again}")
    else:
        print(f"job {name} is saving its state and releasing its nodes; resume it: {context.hint('resume', name)}")
    if not arguments.detach:
        follow_to_exit(api, context, found, stop_on_interrupt=False)
    return ExitStatus.DONE


def resume(arguments: ResumeOptions) -> int:
    """Resume a stopped job, or resubmit one that has ended, from its newest checkpoint."""
    context, api, found = named_job(arguments)
    name = found["metadata"]["name"]
    state = job_state(api, context, name)
    if not state.is_over:
        raise RefusedError(
            f"job {name} is {state.stage}, so there is nothing to resume",
            remedy=f"follow it: {context.hint('logs', name)}",
        )
    written = None
    if is_command_job(found):
        command_jobs.refuse_settings(arguments, name)
    else:
        written = kept_settings(api, context, found)
    archive = given_code(arguments.code) or kept_code(api, found)
    is_suspended = (found.get("status") or {}).get("jobDeploymentStatus") in {None, "", "Suspended"}
    if (
        is_suspended
        and arguments.code is None
        and not arguments.set
        and not job_options(arguments).given()
        and workload_of(api, found) is not None
    ):
        control.reactivate(api, found)
        print(f"job {name} is queued again")
        return _finish(api, context, found, arguments)
    if is_search(found):
        raise RefusedError(
            f"search {name} has ended, or is to change",
            remedy=f"continue it: {context.hint('tune', name).replace(' JOB=', ' NAME=')}",
        )
    if name.startswith(SESSION_PREFIX):
        raise RefusedError(f"session {name} has ended", remedy=f"start another: make cluster ENV={context.env}")
    require_image(arguments.code, context, image=arguments.image or job_manifest.options_of(found).image)
    manifests = _rendered_again(context, found, written, arguments, archive)
    control.remove(api, found, *job_manifest.config_maps(found))
    return submit(api, context, manifests, arguments, code=arguments.code)


def _rendered(
    arguments: TrainOptions | JobYamlOptions,
) -> tuple[ClusterContext, tuple[Manifest, ...], TrainingSettings]:
    """The job that the command line describes; its settings are checked before the stack is read."""
    archive = given_code(arguments.code)
    with importable(archive, with_packages=False) as code:
        written = configuration.load_settings(
            configurations(arguments.config, code), overrides=arguments.set, flags=arguments.flags(), environment={}
        )
        context = context_of(arguments)
        require_image(arguments.code, context, image=arguments.image)
        settings = for_cluster(written, context.target.outputs, team=context.team, now=datetime.now(UTC))
    return context, _render(settings, job_options(arguments), context, archive), settings


def _render(
    settings: TrainingSettings, options: JobOptions, context: ClusterContext, archive: CodeArchive | None
) -> tuple[Manifest, ...]:
    request = job_manifest.request_of(settings, team=context.team.name, options=options, code=packed(archive))
    return render_request(request, context)


def render_request(request: JobRequest, context: ClusterContext) -> tuple[Manifest, ...]:
    """The objects of a job; prints the groups among which the queue chooses.

    Raises:
        PlatformError: the stack cannot run it.
    """
    target = lasting_capacity(request, context.target, now=datetime.now(UTC))
    manifests = render_job(request, target)
    if request.has_choice:  # on standard error: `job` writes YAML to standard output
        print(describe_choice(place_any_job(request, target), target), file=sys.stderr)
    return manifests


def kept_settings(api: KubernetesApi, context: ClusterContext, found: Manifest) -> str:
    """The settings that a job was submitted with, as YAML.

    Raises:
        RefusedError: they are gone.
    """
    name = job_manifest.settings_name(found)
    kept = api.read(api_object(*CONFIG_MAP, name, namespace=context.team.namespace))
    if kept is None:
        raise RefusedError(
            f"job {found['metadata']['name']} has lost its settings, ConfigMap {context.team.namespace}/{name}",
            remedy=f"submit it again: make train ENV={context.env} NAME={found['metadata']['name']} CONFIG=…",
        )
    return job_manifest.settings_text(kept)


def loaded_again(
    found: Manifest, written: str, archive: CodeArchive | None, *, overrides: Sequence[str] = ()
) -> TrainingSettings:
    """The settings of a job that was submitted.

    Args:
        found: the job.
        written: its settings, as `kept_settings` reads them.
        archive: its code; None without.
        overrides: changes, `a.b=c`.

    Raises:
        SettingsError: a change is wrong, or this release refuses the settings.
    """
    with importable(archive, with_packages=False), tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"{job_manifest.settings_name(found)}.yaml")
        file.write_text(written, encoding="utf-8")
        return configuration.load_settings([file], overrides=overrides, environment={})


def _rendered_again(
    context: ClusterContext, found: Manifest, written: str | None, arguments: ResumeOptions, archive: CodeArchive | None
) -> tuple[Manifest, ...]:
    """The same job as this release renders it, with its command or settings, the changes of the command line, and its code."""
    options = job_options(arguments).or_else(job_manifest.options_of(found))
    if written is None:
        command = command_jobs.command_of_job(found)
        if arguments.code is not None:
            command_jobs.check_command(command.text, archive)
        name, team = found["metadata"]["name"], context.team.name
        return render_request(command.request(name, team=team, options=options, code=packed(archive)), context)
    return _render(loaded_again(found, written, archive, overrides=arguments.set), options, context, archive)


def submit(
    api: KubernetesApi,
    context: ClusterContext,
    manifests: tuple[Manifest, ...],
    arguments: FollowOptions,
    *,
    code: Path | None,
) -> int:
    """Submit a job, and follow it unless told not to; returns its exit status.

    Args:
        api: the cluster.
        context: stack and team.
        manifests: the objects of the job.
        arguments: how to follow it.
        code: the user's code folder, whose packages the image must have; None without.

    Raises:
        RefusedError: see `submit_job`.
    """
    return _finish(api, context, submit_job(api, context, manifests, code=code), arguments)


def _finish(api: KubernetesApi, context: ClusterContext, made: Manifest, arguments: FollowOptions) -> int:
    if not arguments.detach:
        return follow_to_exit(api, context, made, stop_on_interrupt=arguments.stop_on_interrupt)
    name = made["metadata"]["name"]
    for command in ("logs", "stop"):
        print(f"  {command:<5} {context.hint(command, name)}")
    return ExitStatus.DONE


def job_options(arguments: SubmissionOptions) -> JobOptions:
    """The options of a job on the command line."""
    return JobOptions(
        group=arguments.group,
        gpu_model=arguments.gpu_model,
        spot=arguments.spot,
        priority=arguments.priority,
        deadline_hours=arguments.deadline_hours,
        restarts=arguments.restarts,
        keep_days=arguments.keep_days,
        image=arguments.image,
    )


def job_state(api: KubernetesApi, context: ClusterContext, name: str) -> JobState:
    """The state of a job that exists."""
    return state_of(watch_of(api, context, name).observe())
