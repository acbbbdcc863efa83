"""The commands of the command line with `--env`: what `training.cli` does on this machine, done on a cluster."""

from __future__ import annotations

import difflib
import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from infra.spec.manifest import Manifest
from platform_charts.jobs.capacity_end import refuse_beyond_capacity
from platform_charts.jobs.document import to_yaml
from platform_charts.jobs.rayjob import render_job
from training.cluster import places, rendering
from training.cluster.connection import connect
from training.cluster.errors import ApiError, ClusterRefusedError
from training.cluster.job_settings import for_cluster
from training.cluster.registry import check_image
from training.cluster.rendering import Wishes
from training.cluster.scene import Scene
from training.cluster.state import JobState, judge
from training.cluster.target import find_target, find_team
from training.config import load as configuration
from training.config.schema import TrainingSettings
from training.errors import ExitStatus, SettingsError
from training.options import (
    ClusterOptions,
    FollowOptions,
    JobOptions,
    JobsOptions,
    LogsOptions,
    ResumeOptions,
    StopOptions,
    SubmissionOptions,
    TrainOptions,
)

if TYPE_CHECKING:
    from training.cluster.api import Api


def train(arguments: TrainOptions) -> ExitStatus:
    """Submit a job and follow it to its end, which is this command's exit status too."""
    scene, manifests, settings = _rendered(arguments)
    if arguments.print_config:
        print(configuration.render(settings), end="")
        return ExitStatus.DONE
    return _submit(_connect(scene, arguments), scene, manifests, arguments)


def job(arguments: JobOptions) -> ExitStatus:
    """Write the objects of a job as YAML; no cluster is asked."""
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
    """Print the jobs of a team, or of every team whose jobs these credentials may see."""
    assert arguments.env is not None, "without --env the command is this machine's"
    target = find_target(arguments.env, file=arguments.outputs, environment=os.environ)
    api = connect(target.outputs, kubeconfig=arguments.kubeconfig, environment=os.environ)
    from training.cluster.job_table import job_table, survey_teams  # noqa: PLC0415

    teams = target.outputs.teams if arguments.team is None else (find_team(target.outputs, arguments.team),)
    print(job_table(survey_teams(api, teams), now=datetime.now(UTC)))
    return ExitStatus.DONE


def logs(arguments: LogsOptions) -> ExitStatus:
    """Print the driver's log and follow it while the job goes on, or print what a rank or a pod wrote so far."""
    scene, api, found = _named_job(arguments)
    if arguments.rank is not None:
        from training.cluster.rank_log import rank_log  # noqa: PLC0415

        for line in rank_log(api, scene.team.namespace, found["metadata"]["name"], arguments.rank):
            print(line)
        return ExitStatus.DONE
    if arguments.pod is not None:
        for line in api.lines(places.log(scene.team.namespace, arguments.pod), {}):
            print(line)
        return ExitStatus.DONE
    from training.cluster.attend import attend  # noqa: PLC0415

    return attend(api, scene, found, stops_on_interrupt=False)


def stop(arguments: StopOptions) -> ExitStatus:
    """Have a job save its state and give its nodes back, and wait until it has."""
    scene, api, found = _named_job(arguments)
    name = found["metadata"]["name"]
    state = _judge(api, scene, name)
    if state.is_over:
        raise ClusterRefusedError(
            f"job {name} is {state.stage} already: {state.reason}".rstrip(": "),
            remedy=f"{scene.hint('resume', name)} goes on with it",
        )
    from training.cluster import control  # noqa: PLC0415
    from training.cluster.attend import attend  # noqa: PLC0415

    control.stop(api, found)
    print(f"job {name} saves its state and gives its nodes back; go on with it: {scene.hint('resume', name)}")
    if not arguments.detach:
        attend(api, scene, found, stops_on_interrupt=False)
    return ExitStatus.DONE


def resume(arguments: ResumeOptions) -> ExitStatus:
    """Let a stopped job go on, or submit one anew that has ended; either goes on from its newest checkpoint."""
    scene, api, found = _named_job(arguments)
    name = found["metadata"]["name"]
    state = _judge(api, scene, name)
    if not state.is_over:
        raise ClusterRefusedError(
            f"job {name} is {state.stage}, so that there is nothing to resume",
            remedy=f"follow it: {scene.hint('logs', name)}",
        )
    from training.cluster import control  # noqa: PLC0415
    from training.cluster.watch import workload_of  # noqa: PLC0415

    is_held = (found.get("status") or {}).get("jobDeploymentStatus") in {None, "", "Suspended"}
    if is_held and not arguments.set and not _wishes(arguments).given() and workload_of(api, found) is not None:
        control.reactivate(api, found)
        print(f"job {name} is in the queue again")
        return _finish(api, scene, found, arguments)
    name_of_settings = rendering.settings_name(found)
    manifests = _rendered_anew(api, scene, found, arguments)
    control.remove(api, found, name_of_settings)
    return _submit(api, scene, manifests, arguments)


def _rendered(arguments: TrainOptions | JobOptions) -> tuple[Scene, tuple[Manifest, ...], TrainingSettings]:
    """The job that the command line describes; what is wrong with its settings is said before the stack is asked."""
    written = configuration.load_settings(
        arguments.config or ["digits"], overrides=arguments.set, flags=arguments.flags(), environment={}
    )
    scene = _scene(arguments)
    settings = for_cluster(written, scene.target.outputs, now=datetime.now(UTC))
    return scene, _render(settings, _wishes(arguments), scene), settings


def _render(settings: TrainingSettings, wishes: Wishes, scene: Scene) -> tuple[Manifest, ...]:
    request = rendering.request_of(settings, team=scene.team.name, wishes=wishes)
    refuse_beyond_capacity(request, scene.target, now=datetime.now(UTC))
    return render_job(request, scene.target)


def _rendered_anew(api: Api, scene: Scene, found: Manifest, arguments: ResumeOptions) -> tuple[Manifest, ...]:
    """The same job in this release's form, with the settings it had and those changed now."""
    name = rendering.settings_name(found)
    kept = api.read(places.config_map(scene.team.namespace, name))
    if kept is None:
        raise ClusterRefusedError(
            f"the settings of job {found['metadata']['name']} are gone: ConfigMap {scene.team.namespace}/{name}",
            remedy=f"submit it again: make train ENV={scene.env} NAME={found['metadata']['name']} CONFIG=…",
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"{name}.yaml")
        file.write_text(rendering.settings_text(kept), encoding="utf-8")
        settings = configuration.load_settings([file], overrides=arguments.set, environment={})
    return _render(settings, _wishes(arguments).over(rendering.wishes_of(found)), scene)


def _submit(api: Api, scene: Scene, manifests: tuple[Manifest, ...], arguments: FollowOptions) -> ExitStatus:
    from training.cluster.submission import submit  # noqa: PLC0415

    (rendered,) = [one for one in manifests if one["kind"] == "RayJob"]
    not_asked = check_image(rendering.image_of(rendered))
    if not_asked:
        print(f"warning: the image was not looked for in the registry: {not_asked}", file=sys.stderr)
    _clear_ended(api, scene)
    made = submit(api, manifests, env=scene.env)
    print(
        f"job {made['metadata']['name']} submitted to queue {scene.team.queue} of {scene.env}: {rendering.describe_size(made)}"
    )
    return _finish(api, scene, made, arguments)


def _clear_ended(api: Api, scene: Scene) -> None:
    from training.cluster.retention import clear_ended  # noqa: PLC0415

    try:
        cleared = clear_ended(api, scene.team.namespace, now=datetime.now(UTC))
    except ApiError as error:  # no reason not to submit: it may be the next one's to do
        print(f"warning: jobs that ended long ago were not cleared away: {error.args[0]}", file=sys.stderr)
        return
    if cleared:
        print(f"cleared away, having ended long ago: {', '.join(cleared)}")


def _finish(api: Api, scene: Scene, made: Manifest, arguments: FollowOptions) -> ExitStatus:
    if not arguments.detach:
        from training.cluster.attend import attend  # noqa: PLC0415

        return attend(api, scene, made, stops_on_interrupt=arguments.stop_on_interrupt)
    name = made["metadata"]["name"]
    for command in ("logs", "stop"):
        print(f"  {command:<5} {scene.hint(command, name)}")
    return ExitStatus.DONE


def _scene(arguments: ClusterOptions) -> Scene:
    assert arguments.env is not None, "without --env the command is this machine's"
    target = find_target(arguments.env, file=arguments.outputs, environment=os.environ)
    return Scene(env=arguments.env, target=target, team=find_team(target.outputs, arguments.team))


def _connect(scene: Scene, arguments: ClusterOptions) -> Api:
    return connect(scene.target.outputs, kubeconfig=arguments.kubeconfig, environment=os.environ)


def _wishes(arguments: SubmissionOptions) -> Wishes:
    return Wishes(
        group=arguments.group,
        priority=arguments.priority,
        deadline_hours=arguments.deadline_hours,
        restarts=arguments.restarts,
        keep_days=arguments.keep_days,
    )


def _named_job(arguments: LogsOptions | StopOptions | ResumeOptions) -> tuple[Scene, Api, Manifest]:
    """Everything that a command on one job begins with."""
    scene = _scene(arguments)
    api = _connect(scene, arguments)
    return scene, api, _find_job(api, scene, arguments.run)


def _find_job(api: Api, scene: Scene, name: str | None) -> Manifest:
    """The job of that name, or the team's newest.

    Raises:
        SettingsError: there is none; names the nearest.
    """
    namespace = scene.team.namespace
    if name is not None:
        found = api.read(places.job(namespace, name))
        if found is not None:
            return found
    known = sorted(api.items(places.jobs(namespace)), key=lambda one: str(one["metadata"]["creationTimestamp"]))
    if name is None and known:
        return known[-1]
    if name is None:
        raise SettingsError(f"team {scene.team.name} has no job", remedy=f"submit one: make train ENV={scene.env}")
    near = difflib.get_close_matches(name, [one["metadata"]["name"] for one in known], n=1)
    again = f"make jobs ENV={scene.env} lists the jobs; a run whose job is gone goes on with make train NAME={name}"
    raise SettingsError(
        f"job {name}: no such job in namespace {namespace}", remedy=f"did you mean {near[0]}?" if near else again
    )


def _judge(api: Api, scene: Scene, name: str) -> JobState:
    from training.cluster.watch import JobWatch  # noqa: PLC0415

    return judge(JobWatch(api, namespace=scene.team.namespace, name=name).observe())
