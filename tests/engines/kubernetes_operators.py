"""A control plane with the KubeRay operator, Kueue, and the nodes and objects of an environment."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.kube.api import KubernetesApi
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.lifecycle.sandbox.modules import KUBERAY, KUEUE, Module
from infra.lifecycle.sandbox.operators import start_kuberay, start_kueue
from infra.lifecycle.sandbox.processes import Process
from infra.lifecycle.sandbox.programs import find_operator
from infra.lifecycle.sandbox.recorded import recorded
from infra.spec.cluster_names import KUEUE_API
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from infra.spec.settings import StackSettings
from platform_charts.jobs.rayjob import render_job
from platform_charts.jobs.request import JobRequest
from platform_charts.jobs.scheduling import JOB_LABEL
from tests.engines.kubernetes import NAME, PROJECTS, Cluster, crds, engine_environment, engine_programs
from tests.engines.kubernetes_platform import Deployments, Environment
from tests.engines.ray_dashboard import Dashboards, dashboards
from tests.engines.report_table import ran, skipped
from training.cluster.state import JobState, state_of
from training.cluster.submission import submit
from training.cluster.watch import JobWatch

_SECONDS = 60


@dataclass(frozen=True)
class Operated:
    """The dev environment on a control plane with the operators."""

    plane: ControlPlane
    environment: Environment
    dashboards: Dashboards
    operators: Mapping[str, Process]

    @property
    def cluster(self) -> Cluster:
        """The API server, with administrator rights."""
        return self.environment.cluster

    def api(self, team: str) -> KubernetesApi:
        """The API server as a client of a team member's commands."""
        return KubernetesApi(self.environment.member(team).client)

    def submit(self, request: JobRequest) -> Manifest:
        """Submit a job as a member of its team; returns the RayJob."""
        return submit(self.api(request.team), render_job(request, self.environment.target), env="dev")

    def look(self, job: Manifest) -> JobState:
        """The state of a job as its team's commands report it."""
        metadata = job["metadata"]
        api = self.api(metadata["namespace"])
        return state_of(JobWatch(api, namespace=metadata["namespace"], name=metadata["name"]).observe())

    def await_state(self, job: Manifest, is_so: Callable[[JobState], bool], *, what: str) -> JobState:
        """Wait until a job's state satisfies `is_so`."""
        seen: list[JobState] = []

        def holds(_job: Manifest) -> bool:
            seen.append(self.look(job))
            return is_so(seen[-1])

        try:
            self.cluster.await_(job, holds, what=what, seconds=_SECONDS)
        except Exception as error:
            error.add_note(f"last state: {seen[-1] if seen else 'deleted'}")
            raise
        return seen[-1]

    def pods(self, job: Manifest, *, labels: str = "") -> list[Manifest]:
        """The pods of a job."""
        metadata = job["metadata"]
        selector = ",".join(filter(None, (f"{JOB_LABEL}={metadata['name']}", labels)))
        return self.cluster.items("v1", "Pod", namespace=metadata["namespace"], labels=selector)

    def workload(self, job: Manifest) -> Manifest:
        """The Workload that Kueue created for a job."""
        metadata = job["metadata"]
        labels = f"kueue.x-k8s.io/job-uid={metadata['uid']}"
        (found,) = self.cluster.items(KUEUE_API, "Workload", namespace=metadata["namespace"], labels=labels)
        return found

    def end(self, job: Manifest, status: str, message: str = "") -> None:
        """Finish a job's driver with a status; the submitter pod, which follows its log, succeeds in any case."""
        name = job["metadata"]["name"]
        self.dashboards.say(name, status, message)
        (submitter,) = self.pods(job, labels=f"batch.kubernetes.io/job-name={name}")
        metadata = {key: submitter["metadata"][key] for key in ("name", "namespace")}
        metadata["annotations"] = {"ray-train-platform/ends": "Succeeded"}
        self.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}, manager="fake-driver")

    def remove(self, *jobs: Manifest) -> None:
        """Delete jobs, wait until their pods are gone, and forget their drivers: the next job may have the same name."""
        self.cluster.delete_all(jobs, seconds=_SECONDS)
        deadline = time.monotonic() + _SECONDS
        while left := [pod["metadata"]["name"] for job in jobs for pod in self.pods(job)]:
            assert time.monotonic() < deadline, f"{left} still exist"
            time.sleep(0.1)
        for job in jobs:
            self.dashboards.forget(job["metadata"]["name"])


@pytest.fixture(scope="session")
def operated() -> Iterator[Operated]:
    """The dev environment with the KubeRay operator, and with Kueue if built; skips without the operator."""
    with operating() as found:
        yield found


@contextmanager
def operating(settings: StackSettings | None = None) -> Iterator[Operated]:
    """A control plane of its own with what `operated` has, or with the environment of these settings."""
    kuberay, kueue = operator_program(KUBERAY), find_operator(KUEUE, engine_environment())
    programs = engine_programs()
    found = [crd for project in PROJECTS for crd in crds(project)]
    folder = Path(tempfile.mkdtemp(prefix="rtp-operators-"))
    try:
        with dashboards() as drivers, ControlPlane(folder / "plane", programs=programs, crds=found) as plane:
            ran(NAME)
            operators = {"kuberay-operator": start_kuberay(plane, kuberay, proxy=drivers.address)}
            ran(KUBERAY.title)
            if kueue is not None:
                operators["kueue"] = start_kueue(plane, kueue)
                ran(KUEUE.title)
            deployments = Deployments(Cluster(plane))
            environment = (
                deployments.up("dev") if settings is None else deployments.deploy("own", settings, recorded(settings))
            )
            yield Operated(plane, environment, drivers, operators)
    finally:
        folder.rmdir()


@pytest.fixture
def queued(operated: Operated) -> Iterator[Operated]:
    """`operated` with Kueue; skips without it. Deletes all jobs afterwards."""
    operator_program(KUEUE)
    yield operated
    operated.remove(*operated.cluster.items("ray.io/v1", "RayJob"))


def operator_program(module: Module) -> Path:
    """The program of an operator; skips without it."""
    try:
        found = find_operator(module, engine_environment())
    except RefusedError as error:
        skipped(module.title, error.args[0], error.remedy or "")
    if found is None:
        named = f", or set {module.variable} to its program" if module.variable else ""
        skipped(module.title, "not built", f"make engines{named}")
    return found
