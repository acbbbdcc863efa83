"""The program that fills the columns of RayJobs: a real API server, a real Prometheus, and the account's own permissions."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import CoreV1Api, CustomObjectsApi
from kubernetes.client.exceptions import ApiException
from prometheus_client import CollectorRegistry, Gauge, start_http_server

from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.lifecycle.sandbox.processes import Process
from infra.spec.cluster_names import JOB_COLUMNS, MONITORING_NAMESPACE
from infra.spec.manifest import Manifest
from infra.spec.release import load_release
from platform_charts.images.job_progress import figures, searches
from platform_charts.images.job_progress.__main__ import Jobs, poll
from platform_charts.images.job_progress.prometheus import Prometheus
from platform_charts.objects.job_progress import progress_objects
from tests.engines.kubernetes import Cluster
from tests.engines.prometheus import scraping
from tests.platform_charts.test_cluster_job_columns import kubeconfig_of, table
from tests.waiting import wait_until

pytestmark = pytest.mark.monitoring

ACCOUNT = "job-progress"
USER = f"system:serviceaccount:{MONITORING_NAMESPACE}:{ACCOUNT}"
TEAM = "progressing"
IMAGES = Path(__file__).parents[2] / "platform_charts" / "images"
PROGRESS, TIME_LEFT, REASON = JOB_COLUMNS.values()
OBJECTS = progress_objects(load_release(), registry="registry.example")


@pytest.fixture(scope="module")
def rights(custom_resources: Cluster) -> Iterator[None]:
    """The account with its role."""
    with (
        custom_resources.namespace(MONITORING_NAMESPACE),
        custom_resources.namespace(TEAM),
        custom_resources.applied(*(one for one in OBJECTS if one["kind"] != "Deployment")),
    ):
        yield


@pytest.fixture
def jobs(control_plane: ControlPlane, rights: None) -> Jobs:
    return Jobs(control_plane.client(USER), columns=JOB_COLUMNS)


def rayjob(name: str) -> Manifest:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {"entrypoint": "true", "clusterSelector": {"ray.io/cluster": "none"}},
    }


def written(cluster: Cluster, job: Manifest) -> dict[str, str]:
    found = cluster.read(job)
    assert found is not None
    known: dict[str, str] = found["metadata"].get("annotations", {})
    return known


class Exposition:
    """Metrics of runs as Ray's agent exports them, with the labels that the PodMonitor adds."""

    def __init__(self) -> None:
        labels = ("run", "namespace", "training_job")
        self.registry = CollectorRegistry()
        self._gauges = {
            name: Gauge(name, name, labels, registry=self.registry)
            for name in (figures.STEP, figures.PLANNED, figures.NEWEST)
        }
        server, self._thread = start_http_server(0, "127.0.0.1", self.registry)
        self._server = server
        self.url = f"http://127.0.0.1:{server.server_port}/metrics"

    def at(self, job: str, step: int, *, planned: int = 5000) -> None:
        values = {figures.STEP: step, figures.PLANNED: planned, figures.NEWEST: time.time()}
        for name, value in values.items():
            self._gauges[name].labels(run=job, namespace=TEAM, training_job=job).set(value)

    def end(self, job: str) -> None:
        for gauge in self._gauges.values():
            gauge.remove(job, TEAM, job)

    def search(self, job: str, **values: float) -> None:
        """What the driver of a search exports: of each metric a value, of the trials one for each status."""
        labels = {"namespace": TEAM, "training_job": job}
        for name, value in values.items():
            more = {"metric": "validation_accuracy"} if name == searches.BEST else {}
            gauge = Gauge(name, name, (*labels, *more), registry=self.registry)
            gauge.labels(**labels, **more).set(value)
        trials = Gauge(searches.TRIALS, "trials", (*labels, "status"), registry=self.registry)
        for number, status in enumerate(("running", "done", "stopped", "failed"), start=1):
            trials.labels(**labels, status=status).set(number)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def exposition() -> Iterator[Exposition]:
    found = Exposition()
    yield found
    found.close()


def program(control_plane: ControlPlane, folder: Path, prometheus: str) -> Process:
    """The program as the Deployment runs it, with a token of its account, and more frequent polls."""
    kubeconfig = kubeconfig_of(control_plane, ACCOUNT, folder)
    (deployment,) = [one for one in OBJECTS if one["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    arguments = [one for one in container["args"] if not one.startswith("--prometheus=")]
    return Process(
        [sys.executable, *container["command"][1:], *arguments, f"--prometheus={prometheus}", "--interval=0.2"],
        log=folder / "program.log",
        environment={"KUBECONFIG": str(kubeconfig), "PYTHONPATH": os.fspath(IMAGES)},
    )


def shown(cluster: Cluster, name: str) -> Mapping[str, object]:
    return table(cluster, TEAM)[1][name]


def wait_for(holds: Callable[[], bool], log: Path, *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, log.read_text(encoding="utf-8")
        time.sleep(0.1)


@pytest.mark.extended
def test_the_program_follows_prometheus_and_survives_its_end(
    custom_resources: Cluster,
    control_plane: ControlPlane,
    rights: None,
    exposition: Exposition,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job, log = rayjob("digits"), tmp_path / "program.log"
    with custom_resources.applied(job), ExitStack() as stack:
        custom_resources.update_status(job, {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"})
        with scraping(exposition.url, folder=tmp_path) as prometheus:
            process = program(control_plane, tmp_path, prometheus.url)
            stack.callback(process.stop)
            for step in range(1200, 1241, 10):  # 10 to 20 steps per second
                exposition.at("digits", step)
                text = f"{step:,}/5,000 (24 %)"
                wait_for(lambda text=text: shown(custom_resources, "digits")["progress"] == text, log)  # type: ignore[misc]
            wait_for(lambda: shown(custom_resources, "digits")["time left"] is not None, log)
            exposition.at("digits", 1300)
            wait_for(lambda: shown(custom_resources, "digits")["progress"] == "1,300/5,000 (26 %)", log)
            left = shown(custom_resources, "digits")["time left"]
        # Prometheus is gone.
        wait_for(lambda: "Prometheus does not answer" in log.read_text(encoding="utf-8"), log)
        row = shown(custom_resources, "digits")
        assert (row["progress"], row["reason"]) == ("1,300/5,000 (26 %)", None)
        assert str(left).endswith("m")
        failed = {"jobDeploymentStatus": "Failed", "reason": "AppFailed", "message": "exit code 1"}
        custom_resources.update_status(job, failed)
        wait_for(lambda: shown(custom_resources, "digits")["reason"] == "AppFailed: exit code 1", log)
        row = shown(custom_resources, "digits")
        assert (row["progress"], row["time left"]) == ("1,300/5,000 (26 %)", None)


def test_a_search_is_known_beside_a_run_whose_last_step_is_known_for_a_while_after_its_end(
    exposition: Exposition, tmp_path: Path
) -> None:
    exposition.at("digits", 5000)
    exposition.at("tuning", 40, planned=120)  # a trial
    figures_of_driver = {searches.BEST: 0.975, searches.LEFT: 600.0, searches.PLANNED: 16, searches.NEWEST: time.time()}
    exposition.search("tuning", **figures_of_driver)
    with scraping(exposition.url, folder=tmp_path) as server:
        asked = Prometheus(server.url)
        wait_until(lambda: len(asked.runs() or {}) == 2)
        exposition.end("digits")
        wait_until(lambda: not server.query(f'{figures.STEP}{{training_job="digits"}}'))
        found = asked.runs() or {}
    assert found[TEAM, "digits"].progress() == "5,000/5,000 (100 %)"
    assert found[TEAM, "tuning"].progress() == "9/16 trials, 1 running, 4 failed, validation accuracy 0.9750"


def test_a_job_without_news_is_not_written(custom_resources: Cluster, jobs: Jobs) -> None:
    job = rayjob("digits")
    run = figures.Run(step=10, planned_steps=100, newest=time.time() + 60, steps_per_second=0.5)
    with custom_resources.applied(job):
        custom_resources.update_status(job, {"jobDeploymentStatus": "Running"})
        versions = set()
        for _ in range(3):
            assert poll(jobs, {(TEAM, "digits"): run}) == []
            versions.add((custom_resources.read(job) or {})["metadata"]["resourceVersion"])
        assert written(custom_resources, job) == {PROGRESS: "10/100 (10 %)", TIME_LEFT: "3m"}
    assert len(versions) == 1


def test_a_patch_leaves_what_others_wrote(custom_resources: Cluster, jobs: Jobs) -> None:
    ours = rayjob("digits")
    ours["metadata"]["annotations"] = {"ray-train-platform/submission": "1"}
    with custom_resources.applied(ours) as (made,):
        assert jobs.write(made, {"progress": "1/2 (50 %)"}) == ""
        # Neither the submitter's repeated request nor another writer's patch conflicts with it.
        again = custom_resources.apply(ours, force=False)
        custom_resources.patch(ours, {"metadata": {"annotations": {"other": "x"}}})
        assert jobs.write(made, {"time left": "5m", "progress": "2/2 (100 %)"}) == ""
        expected = {"ray-train-platform/submission": "1", "other": "x", PROGRESS: "2/2 (100 %)", TIME_LEFT: "5m"}
        assert written(custom_resources, ours) == expected
        assert jobs.write(made, {"time left": None}) == ""
        assert TIME_LEFT not in written(custom_resources, ours)
    (owned,) = [one["fieldsV1"] for one in again["metadata"]["managedFields"] if one["manager"] == ACCOUNT]
    assert set(owned["f:metadata"]["f:annotations"]) == {f"f:{PROGRESS}"}
    assert again["metadata"]["generation"] == made["metadata"]["generation"]


def test_a_job_that_was_deleted_or_replaced_in_between_is_passed_over(custom_resources: Cluster, jobs: Jobs) -> None:
    first, second = rayjob("digits"), rayjob("others")
    with custom_resources.applied(first, second) as (made, _):
        listed = list(jobs.list_all())
        custom_resources.delete_all([first])
        assert jobs.write(made, {"reason": "late"}) == f"{TEAM}/digits: not written (404 Not Found)"
        custom_resources.apply(first)
        assert jobs.write(made, {"reason": "late"}) == f"{TEAM}/digits: not written (422 Unprocessable Entity)"
        assert written(custom_resources, first) == {}
        # The UID is immutable, so a patch for another one is invalid. The other jobs of the poll are written.
        for job in (first, second):
            custom_resources.update_status(job, {"jobDeploymentStatus": "Failed", "reason": "AppFailed"})
        stale = [{**one, "status": {"jobDeploymentStatus": "Failed", "reason": "AppFailed"}} for one in listed]
        jobs.list_all = lambda: iter(stale)  # type: ignore[method-assign]
        assert poll(jobs, {}) == [f"{TEAM}/digits: not written (422 Unprocessable Entity)"]
        assert written(custom_resources, second) == {REASON: "AppFailed"}


def test_all_pages_of_jobs_are_read(custom_resources: Cluster, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform_charts.images.job_progress.__main__._PAGE", 2)
    with custom_resources.applied(*(rayjob(f"job-{number}") for number in range(5))):
        listed = [(one["metadata"]["namespace"], one["metadata"]["name"]) for one in jobs.list_all()]
    # A job of another test may still be going, with its namespace.
    assert len(listed) == len(set(listed))
    assert {f"job-{number}" for number in range(5)} <= {name for _, name in listed}


def test_the_account_has_no_other_permissions(control_plane: ControlPlane, rights: None) -> None:
    api = control_plane.client(USER)
    core, custom = CoreV1Api(api), CustomObjectsApi(api)
    forbidden: tuple[Callable[[], Any], ...] = (
        core.list_secret_for_all_namespaces,
        core.list_pod_for_all_namespaces,
        core.list_node,
        lambda: custom.get_namespaced_custom_object("ray.io", "v1", TEAM, "rayjobs", "digits"),
        lambda: custom.delete_namespaced_custom_object("ray.io", "v1", TEAM, "rayjobs", "digits"),
        lambda: custom.create_namespaced_custom_object("ray.io", "v1", TEAM, "rayjobs", rayjob("digits")),
        lambda: custom.patch_namespaced_custom_object_status("ray.io", "v1", TEAM, "rayjobs", "digits", {}),
        lambda: custom.list_cluster_custom_object("ray.io", "v1", "rayclusters"),
        lambda: custom.patch_namespaced_custom_object("kueue.x-k8s.io", "v1beta2", TEAM, "workloads", "digits", {}),
    )
    for request in forbidden:
        with pytest.raises(ApiException) as refused:
            request()
        assert refused.value.status == 403
