"""The program that records jobs: as a process with its account's token, with the real KubeRay, Kueue and scheduler."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import CoreV1Api
from kubernetes.client.exceptions import ApiException

from infra.lifecycle.sandbox.processes import Process
from infra.spec.cluster_names import MONITORING_NAMESPACE
from infra.spec.errors import PlatformError
from infra.spec.manifest import Manifest
from observability.postmortem.record import JobRecord
from tests.engines.kubernetes_operators import Operated
from tests.platform_charts.test_cluster_job_columns import kubeconfig_of
from tests.training.cluster.commands import options_on
from tests.training.cluster.test_cluster_queue import admitted, gpus
from tests.waiting import wait_until
from training.cli import main
from training.cluster.objects import CONFIG_MAP
from training.cluster.postmortem import find_records
from training.cluster.records import RECORD_LABEL, records_of

ACCOUNT = "job-recorder"
TEAM = "research"
IMAGES = Path(__file__).parents[2] / "platform_charts" / "images"
_SECONDS = 60


class Recorder:
    """The program as the Deployment runs it, with a token of its account; records are complete after a second."""

    def __init__(self, operated: Operated, folder: Path) -> None:
        kubeconfig = kubeconfig_of(operated.plane, ACCOUNT, folder)
        (deployment,) = [
            one
            for one in operated.environment.manifests
            if one["kind"] == "Deployment" and one["metadata"]["name"] == ACCOUNT
        ]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        self._operated = operated
        self._command = [sys.executable, *container["command"][1:], *container["args"], "--settle=1"]
        self._environment = {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": os.fspath(IMAGES)}
        self.log = folder / "recorder.log"
        self.process = self._start()

    def _start(self) -> Process:
        process = Process(self._command, log=self.log, environment=self._environment)
        process.await_(lambda: "recording the jobs of" in self.log.read_text(), seconds=_SECONDS)
        return process

    def crash(self) -> None:
        """Kill it, as a node that is lost does."""
        self.process.stop()

    def restart(self) -> None:
        """Start it again, as Kubernetes does."""
        self.process = self._start()

    def await_record(self, name: str, holds: Callable[[JobRecord], bool]) -> JobRecord:
        """Wait until the record of a job is so."""
        seen: list[JobRecord] = []

        def is_so() -> bool:
            assert self.process.is_running, self.log.read_text()
            found = records_of(self._operated.cluster, TEAM, name)
            seen[:] = found[:1]
            return bool(found) and holds(found[0])

        try:
            wait_until(is_so, seconds=_SECONDS)
        except AssertionError as error:
            error.add_note(f"{self.log.read_text()}\n{seen}")
            raise
        return seen[0]

    def await_printed(self, name: str) -> list[dict[str, Any]]:
        """The records of a job that it has printed, once there are any: it stores a record before it prints it."""
        wait_until(lambda: bool(self._printed(name)), seconds=_SECONDS)
        return self._printed(name)

    def _printed(self, name: str) -> list[dict[str, Any]]:
        # A line without its end is still being written.
        lines = [json.loads(line) for line in self.log.read_text().split("\n")[:-1] if line.startswith("{")]
        return [line for line in lines if line["name"] == name]


@pytest.fixture
def recorder(queued: Operated, tmp_path: Path) -> Iterator[Recorder]:
    """Runs while the test does; the records are deleted afterwards."""
    found = Recorder(queued, tmp_path)
    yield found
    found.crash()
    queued.cluster.delete_all(queued.cluster.items("v1", "ConfigMap", namespace=TEAM, labels=RECORD_LABEL))


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def kill_by_memory(queued: Operated, pod: Manifest) -> None:
    """Write the status of a pod whose container was killed for its memory, as the kubelet does."""
    (container,) = pod["spec"]["containers"]
    ended = {"exitCode": 137, "reason": "OOMKilled", "startedAt": pod["status"]["startTime"], "finishedAt": now()}
    known = {"name": container["name"], "image": container["image"], "imageID": "", "ready": False, "restartCount": 0}
    status = {"phase": "Running", "containerStatuses": [{**known, "state": {"terminated": ended}}]}
    queued.cluster.update_status({"apiVersion": "v1", "kind": "Pod", **pod}, status)


def postmortem(queued: Operated, folder: Path, *arguments: str) -> int:
    out = ["--out", str(folder / "page.html")]
    return main(["postmortem", *options_on(queued, folder), *out, *arguments])


def test_the_first_cause_is_known_after_the_job_and_its_pods_are_deleted(
    queued: Operated, recorder: Recorder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = admitted(queued, gpus("memory", TEAM, 8))
    queued.dashboards.say("memory", "RUNNING")
    queued.await_state(made, lambda state: state.stage == "running", what="running")
    recorder.await_record("memory", lambda record: len(record.pods) == 4 and record.workload is not None)
    worker = queued.pods(made, labels="ray.io/node-type=worker")[0]
    kill_by_memory(queued, worker)
    killed = worker["metadata"]["name"]
    recorder.await_record("memory", lambda record: bool(record.pods[worker["metadata"]["uid"]].ends))
    # While it is away the driver fails and KubeRay deletes the pods; it continues the record from the ConfigMap.
    recorder.crash()
    queued.end(
        made, "FAILED", "Job entrypoint command failed with exit code 1, last available logs:\nerror: rank 5 died"
    )
    queued.remove(made)
    recorder.restart()
    record = recorder.await_record("memory", lambda record: record.is_complete)
    assert record.ending == "Deleted"
    assert all(pod.gone is not None for pod in record.pods.values())
    lost = record.pods[worker["metadata"]["uid"]]
    assert (lost.kind, lost.node, lost.node_state) == ("worker", worker["spec"]["nodeName"], "ready")
    assert "Scheduled" in {event.reason for event in record.events.values()}
    (printed,) = recorder.await_printed("memory")
    assert printed["pods"].keys() == record.pods.keys()

    assert postmortem(queued, tmp_path, "memory") == 0
    shown = capsys.readouterr().out
    assert f"pod {killed}, container ray-worker: OOMKilled, exit code 137" in shown
    page = (tmp_path / "page.html").read_text()
    assert killed in page
    assert "OOMKilled" in page


def test_a_wrong_name_lists_the_records_that_there_are(queued: Operated, recorder: Recorder) -> None:
    made = admitted(queued, gpus("known", TEAM, 4))
    recorder.await_record("known", lambda record: bool(record.pods))
    with pytest.raises(PlatformError, match="no record of a job knwon") as refused:
        find_records(queued.api(TEAM), TEAM, "knwon")
    assert "known" in refused.value.remedy
    queued.remove(made)


def test_a_damaged_record_is_refused_by_name(queued: Operated) -> None:
    name = "record.broken.0"
    metadata = {"name": name, "namespace": TEAM, "labels": {RECORD_LABEL: "broken"}}
    broken = {"apiVersion": CONFIG_MAP[0], "kind": CONFIG_MAP[1], "metadata": metadata, "data": {}}
    with queued.cluster.applied(broken), pytest.raises(PlatformError, match=f"ConfigMap {TEAM}/{name} is not a record"):
        find_records(queued.api(TEAM), TEAM, "broken")


def test_the_account_may_change_nothing_but_config_maps(queued: Operated) -> None:
    core = CoreV1Api(queued.plane.client(f"system:serviceaccount:{MONITORING_NAMESPACE}:{ACCOUNT}"))
    forbidden: tuple[Callable[[], object], ...] = (
        core.list_secret_for_all_namespaces,
        core.list_pod_for_all_namespaces,
        core.list_node,
        lambda: core.list_namespaced_secret(TEAM),
        lambda: core.list_namespaced_config_map("kube-system"),
        lambda: core.delete_namespaced_pod("any", TEAM),
        lambda: core.create_namespaced_config_map("kube-system", {"metadata": {"name": "any"}}),
    )
    for request in forbidden:
        with pytest.raises(ApiException) as refused:
            request()
        assert refused.value.status == 403
