"""A cluster of the release before that becomes one of this release while a job trains.

The release before is this one with another version, another minor of KubeRay with its CRDs, another configuration of Kueue, and
settings with other quotas, one more team, and Grafana open to the teams. Kueue is of one version, because another one takes
twice as long to build as KubeRay. The engine is a double (`tests.engines.kubernetes_stack`), and so are the drivers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from infra.aws import program
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.lifecycle.sandbox.modules import KUBERAY, KUEUE, PREVIOUS_KUBERAY, Module
from infra.lifecycle.sandbox.nodes import fake_nodes
from infra.lifecycle.sandbox.recorded import recorded
from infra.lifecycle.upgrade.division import plan_of
from infra.lifecycle.upgrade.run import Upgrade
from infra.lifecycle.upgrade.steps import UpgradePlan
from infra.preview.recording import Recording, record
from infra.spec.catalog import load_catalog
from infra.spec.manifest import Manifest, annotated
from infra.spec.outputs import read_outputs
from infra.spec.release import ReleaseManifest, load_release
from infra.spec.settings import StackSettings
from infra.spec.settings.platform import Team
from platform_charts.charts import kueue as kueue_chart
from platform_charts.charts.crds import CHART_VERSION
from platform_charts.jobs.rayjob import render_job
from platform_charts.jobs.request import JobRequest, Target
from tests.engines.kubernetes import NAME, Cluster, crds, crds_of, engine_programs
from tests.engines.kubernetes_history import History, watching
from tests.engines.kubernetes_jobs import is_ready, job
from tests.engines.kubernetes_operators import Operated, operator_program
from tests.engines.kubernetes_platform import Environment, await_quotas
from tests.engines.kubernetes_stack import ClusterStack, StackRelease
from tests.engines.ray_dashboard import dashboards
from tests.engines.report_table import ran
from tests.infra.aws.graphs import graph, settings_of
from tests.platform_charts.undisturbed import KINDS
from tests.waiting import wait_until
from training.cluster.state import Stage
from training.cluster.submission import submit

OLD_VERSION = "0.0.9"
LEFT_TEAM = "legacy"
"""A team that only the release before has."""

_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Upgraded:
    """A cluster after its upgrade.

    Attributes:
        operated: the cluster.
        old: what the release before made.
        new: what this release makes.
        plan: the steps that were taken.
        stack: the stack; its first run is the deployment of the release before.
        job: the job that was submitted before the upgrade.
        newer: the job that was submitted after it.
        stages: of both jobs, when the second one ran.
        history: what happened in the first job's namespace from before the upgrade until the second job ran.
    """

    operated: Operated
    old: StackRelease
    new: StackRelease
    plan: UpgradePlan
    stack: ClusterStack
    job: Manifest
    newer: Manifest
    stages: tuple[Stage, ...]
    history: History


@contextmanager
def upgraded_cluster() -> Iterator[Upgraded]:
    """Deploy the release before, start a job, upgrade, and start another job."""
    old, new = stack_before(), _stack(KUBERAY, graph("dev"))
    folder = Path(tempfile.mkdtemp(prefix="rtp-upgrade-"))
    others = [crd for project in ("kueue", "prometheus-operator") for crd in crds(project)]
    try:
        with (
            dashboards() as drivers,
            ControlPlane(folder / "plane", programs=engine_programs(), crds=(*old.crds, *others)) as plane,
        ):
            for name in (NAME, PREVIOUS_KUBERAY.title, KUBERAY.title, KUEUE.title):
                ran(name)
            settings = settings_of("dev")
            cluster, stack = Cluster(plane), ClusterStack(plane, proxy=drivers.address)
            for node in fake_nodes(settings, catalog=load_catalog()):
                cluster.create(node)
            stack.up(old)
            await_quotas(cluster, old.objects.values())
            objects = tuple(new.objects.values())
            environment = Environment(cluster, settings, recorded(settings), objects)
            yield _upgrade(Operated(plane, environment, drivers, stack.operators), stack, old, new)
    finally:
        folder.rmdir()


def stack_before() -> StackRelease:
    """What the release before makes of dev."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "load_release", _release_before)
        patch.setattr(kueue_chart, "READY_TIMEOUT_MINUTES", 20)
        return _stack(PREVIOUS_KUBERAY, record(_settings_before()))


def _upgrade(operated: Operated, stack: ClusterStack, old: StackRelease, new: StackRelease) -> Upgraded:
    before = _submitted_before(operated, old, job("before", team="research", group="a10g", workers=8))
    plan = plan_of(stack.preview(new), canary=None)
    with watching(operated.cluster, KINDS, namespace="research") as history:
        status = Upgrade(
            environment="dev",
            api=operated.cluster,
            steps=plan.steps,
            pulumi=lambda excluded: stack.up(new, excluded),
            preview=lambda: stack.preview(new),
            choose=_no_nodes_roll,
            verify=lambda: 0,
            proceeds=lambda: True,
            seconds=_SECONDS,
            say=print,
        ).run()
        assert status == 0
        newer = operated.submit(job("newer", team="platform", workers=1, gpus_per_worker=0))
        _await_running(operated, newer)
        stages = tuple(operated.look(one).stage for one in (before, newer))
    return Upgraded(
        operated=operated,
        old=old,
        new=new,
        plan=plan,
        stack=stack,
        job=before,
        newer=newer,
        stages=stages,
        history=history,
    )


def _submitted_before(operated: Operated, old: StackRelease, request: JobRequest) -> Manifest:
    """A job as the release before submits it, whose driver runs and whose pods are ready."""
    outputs = read_outputs({**old.graph.outputs, "is_recorded": True}, file="release before")
    target = Target(outputs=outputs, release=_release_before(), catalog=load_catalog())
    *others, rayjob = render_job(request, target)
    del rayjob["spec"]["preRunningDeadlineSeconds"]  # new in KubeRay 1.6
    submitted = submit(operated.api(request.team), (*others, rayjob), env="dev")
    _await_running(operated, submitted)
    return submitted


def _await_running(operated: Operated, submitted: Manifest) -> None:
    operated.dashboards.say(submitted["metadata"]["name"], "RUNNING")
    operated.await_state(submitted, lambda state: state.stage == "running", what="running")
    wait_until(lambda: all(map(is_ready, operated.pods(submitted))), seconds=_SECONDS)


def _release_before() -> ReleaseManifest:
    """This release with the version before, and KubeRay of the minor before."""
    release = load_release()
    kuberay = release.charts["kuberay-operator"].model_copy(update={"version": PREVIOUS_KUBERAY.version})
    trainer = release.images["trainer"].model_copy(update={"tag": OLD_VERSION})
    charts, images = {**release.charts, "kuberay-operator": kuberay}, {**release.images, "trainer": trainer}
    return release.model_copy(update={"platform": OLD_VERSION, "charts": charts, "images": images})


def _settings_before() -> StackSettings:
    settings = settings_of("dev")
    research, platform = settings.teams
    teams = (research.model_copy(update={"gpus": {"t4": 4, "a10g": 4}}), platform, Team(name=LEFT_TEAM, gpus={"t4": 4}))
    monitoring = settings.monitoring.model_copy(update={"open_to_teams": True})
    return settings.model_copy(update={"teams": teams, "monitoring": monitoring})


def _stack(kuberay: Module, resources: Recording) -> StackRelease:
    programs = {"kuberay-operator": operator_program(kuberay), "kueue": operator_program(KUEUE)}
    versioned = tuple(annotated(crd, CHART_VERSION, kuberay.version) for crd in crds_of(kuberay))
    return StackRelease(graph=resources, crds=versioned, programs=programs)


def _no_nodes_roll() -> NoReturn:
    pytest.fail("the upgrade asks what to do about jobs, and replaces no nodes")
