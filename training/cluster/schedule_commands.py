"""The commands of `training.cli` on schedules."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from infra.kube.stack_connection import connect
from infra.spec.errors import SettingsError
from platform_charts.jobs.capacity_end import lasting_capacity, without_blocks
from platform_charts.jobs.schedule import ScheduleRequest, occurrence_objects, render_schedule, template_name
from training.cluster.code_packages import check_derived, require_image
from training.cluster.commands import job_options
from training.cluster.context import ClusterContext, read_target, team_named
from training.cluster.cron import parse_cron, zone_named
from training.cluster.job_manifest import describe_size, image_of, request_of
from training.cluster.job_settings import for_cluster
from training.cluster.own_code import packed
from training.cluster.registry import check_images
from training.cluster.schedules import (
    delete_schedule,
    next_time,
    observe_schedules,
    pause_schedule,
    put_schedule,
    schedule_named,
    schedule_names,
    schedule_table,
)
from training.cluster.steps import connection_of, context_with, contexts_of
from training.code.given import configurations, given_code, importable
from training.config import load as configuration
from training.config.schema import TrainingSettings
from training.errors import ExitStatus
from training.options.training import SchedulesOptions, TrainOptions, UnscheduleOptions


def schedule(arguments: TrainOptions) -> ExitStatus:
    """Create or replace a schedule."""
    if arguments.env is None or arguments.schedule is None:
        raise SettingsError("--schedule needs a cluster", remedy="name its environment: ENV=… (--env)")
    parse_cron(arguments.schedule)
    zone_named(arguments.time_zone)
    archive, now = given_code(arguments.code), datetime.now(UTC)
    with importable(archive, with_packages=False) as code:
        name, settings = _settings(arguments, configurations(arguments.config, code))
        target = read_target(arguments.env, file=arguments.outputs, environment=os.environ)
        context = ClusterContext(env=arguments.env, target=target, team=team_named(target.outputs, arguments.team))
        require_image(arguments.code, context, image=arguments.image)
        on_cluster = for_cluster(settings, target.outputs, team=context.team, now=now)
    if arguments.print_config:
        print(configuration.render(on_cluster), end="")
        return ExitStatus.DONE
    request = ScheduleRequest(
        name=name,
        job=request_of(on_cluster, team=context.team.name, options=job_options(arguments), code=packed(archive)),
        cron=arguments.schedule,
        time_zone=arguments.time_zone,
        concurrency=arguments.concurrency,
        history=arguments.history,
    )
    target = lasting_capacity(request.job, target, now=now)
    if request.job.group is None:
        target = without_blocks(target)
    manifests, occurrence = render_schedule(request, target), occurrence_objects(request, target)
    api = connect(target.outputs, kubeconfig=arguments.kubeconfig, environment=os.environ)
    (job,) = [one for one in occurrence if one["kind"] == "RayJob"]
    (cron_job,) = [one for one in manifests if one["kind"] == "CronJob"]
    (container,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    check_images(target.outputs, image_of(job), container["image"])
    check_derived(job, arguments.code, context)
    made = put_schedule(api, manifests, occurrence)
    print(
        f"schedule {name} of team {context.team.name} in {context.env}: next {next_time(made, now=now)}, {describe_size(job)}\n"
        f"  each job and run is {name}-YYYYMMDD-HHMM (UTC), and goes through queue {context.team.queue}\n"
        f"  list:  make schedules ENV={context.env}\n"
        f"  end:   {context.hint('unschedule', name).replace(' JOB=', ' NAME=')}"
    )
    return ExitStatus.DONE


def schedules(arguments: SchedulesOptions) -> ExitStatus:
    """Print the schedules of a team, or of every team that this user may list."""
    target = read_target(arguments.env, file=arguments.outputs, environment=os.environ)
    api = connect(target.outputs, kubeconfig=arguments.kubeconfig, environment=os.environ)
    teams = target.outputs.teams if arguments.team is None else (team_named(target.outputs, arguments.team),)
    print(schedule_table(observe_schedules(api, teams), now=datetime.now(UTC)))
    return ExitStatus.DONE


def unschedule(arguments: UnscheduleOptions) -> ExitStatus:
    """End or pause a schedule."""
    contexts = contexts_of(arguments)
    api = connection_of(contexts[0], arguments)
    context = context_with(
        contexts, "schedule", lambda one: schedule_names(api, one.team.namespace), name=arguments.name
    )
    cron_job = schedule_named(api, context.team.namespace, arguments.name)
    if arguments.pause:
        pause_schedule(api, cron_job)
        print(f"schedule {arguments.name} is paused; start it again with make train … SCHEDULE=… NAME={arguments.name}")
    else:
        delete_schedule(api, cron_job)
        print(f"schedule {arguments.name} deleted; its jobs stay: make jobs ENV={arguments.env}")
    return ExitStatus.DONE


def _settings(arguments: TrainOptions, config: Sequence[str]) -> tuple[str, TrainingSettings]:
    """Name of the schedule, and the settings of its jobs, whose run has the template's name.

    Without a name the schedule has that of the last configuration file.
    """
    written = configuration.load_settings(config, overrides=arguments.set, flags=arguments.flags(), environment={})
    name = written.run.name or Path(str(config[-1])).stem
    changes = (*arguments.set, f"run.name={template_name(name)}")
    return name, configuration.load_settings(config, overrides=changes, flags=arguments.flags(), environment={})
