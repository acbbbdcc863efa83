"""Following a job on a real API server, through queue, start, run and end, and through a network that breaks."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from kubernetes import config

from infra.lifecycle.sandbox.control_plane import ControlPlane
from platform_charts.jobs.scheduling import JOB_LABEL
from tests.training.cluster.proxy import Proxy
from tests.training.cluster.stage import Stage, wait_until
from training.cluster import follow as following
from training.cluster import places
from training.cluster.api import Api
from training.cluster.follow import follow
from training.cluster.state import JobState
from training.cluster.submission import submit
from training.cluster.view import JobView
from training.cluster.watch import JobWatch
from training.errors import ExitStatus


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks every tenth of a second."""
    monkeypatch.setattr(following, "_LOOK_SECONDS", 0.1)


class Follower:
    """A follower in a thread of its own, and what it has shown so far."""

    def __init__(self, api: Api, stage: Stage, name: str) -> None:
        self._stream = io.StringIO()
        watch = JobWatch(api, namespace=stage.namespace, name=name)
        view = JobView(self._stream, is_terminal=False)
        self._ended: list[JobState] = []
        self._thread = threading.Thread(target=lambda: self._ended.append(follow(watch, None, view)), daemon=True)
        self._thread.start()

    @property
    def shown(self) -> str:
        """Everything it printed."""
        return self._stream.getvalue()

    def sees(self, text: str) -> None:
        """Wait until it has shown this."""
        wait_until(lambda: text in self.shown or not self._thread.is_alive())
        assert text in self.shown, self.shown

    def end(self) -> JobState:
        """Wait for its end."""
        self._thread.join(30)
        (state,) = self._ended
        return state


def test_a_job_is_shown_from_the_queue_to_its_end(on_stage: Stage, api: Api, name: str) -> None:
    submit(api, on_stage.objects(name), env="dev")
    on_stage.operator_writes(name, jobDeploymentStatus="Initializing")
    follower = Follower(api, on_stage, name)
    follower.sees("starting the pods")
    on_stage.operator_writes(name, jobDeploymentStatus="Running", jobStatus="RUNNING")
    follower.sees("the driver runs")
    on_stage.operator_writes(name, jobDeploymentStatus="Complete", jobStatus="SUCCEEDED")
    assert follower.end().status is ExitStatus.DONE
    assert follower.shown.splitlines()[-1] == "done"


def test_a_queued_job_says_its_place_where_kueue_does_not_tell(on_stage: Stage, api: Api, name: str) -> None:
    first, second = f"{name}-a", f"{name}-b"
    for one in (first, second):
        submit(api, on_stage.objects(one), env="dev")
        api.patch(places.job(on_stage.namespace, one), {"spec": {"suspend": True}}, doing="play Kueue's webhook")
        on_stage.queue(one, QuotaReserved=False)
    follower = Follower(api, on_stage, second)
    follower.sees("QuotaReserved by the double")
    assert "position " in follower.shown
    on_stage.api.delete(on_stage.job(second) or {})
    assert follower.end().stage in {"deleted", "stopping"}


def test_a_pod_without_a_node_says_what_the_scheduler_says(on_stage: Stage, api: Api, name: str) -> None:
    submit(api, on_stage.objects(name), env="dev")
    on_stage.operator_writes(name, jobDeploymentStatus="Initializing", rayClusterName=f"{name}-abcde")
    head = plain_pod(name, on_stage.namespace)
    follower = Follower(api, on_stage, name)
    with on_stage.api.applied(head):
        follower.sees("Unschedulable")
        on_stage.operator_writes(
            name, jobDeploymentStatus="Failed", reason="PreRunningDeadlineExceeded", message="it took too long"
        )
        state = follower.end()
    assert state.status is ExitStatus.FAILED
    assert "PreRunningDeadlineExceeded" in state.reason
    assert "Unschedulable" in state.reason


@contextmanager
def proxied(control_plane: ControlPlane, folder: Path) -> Iterator[tuple[Proxy, Api]]:
    """The API server through a network that can be cut."""
    kubeconfig = yaml.safe_load(control_plane.kubeconfig.read_text())
    reached = kubeconfig["clusters"][0]["cluster"]
    with Proxy(int(reached["server"].rpartition(":")[2])) as proxy:
        reached["server"] = f"https://127.0.0.1:{proxy.port}"
        file = folder / "kubeconfig"
        file.write_text(yaml.safe_dump(kubeconfig))
        yield proxy, Api(config.new_client_from_config(str(file)))


def test_a_broken_network_is_waited_for_and_the_job_goes_on(
    on_stage: Stage, api: Api, name: str, control_plane: ControlPlane, tmp_path: Path
) -> None:
    submit(api, on_stage.objects(name), env="dev")
    on_stage.operator_writes(name, jobDeploymentStatus="Running", jobStatus="RUNNING")
    with proxied(control_plane, tmp_path) as (proxy, far):
        follower = Follower(far, on_stage, name)
        follower.sees("the driver runs")
        proxy.cut()
        follower.sees("connection lost, the job goes on")
        proxy.mend()
        follower.sees("connected again")
        assert on_stage.job(name) is not None
        on_stage.operator_writes(name, jobDeploymentStatus="Complete", jobStatus="SUCCEEDED")
        assert follower.end().status is ExitStatus.DONE


def plain_pod(name: str, namespace: str) -> dict[str, object]:
    """The job's head as far as the scheduler looks at it: on no node there is."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{name}-head", "namespace": namespace, "labels": {JOB_LABEL: name}},
        "spec": {"containers": [{"name": "ray-head", "image": "trainer"}], "nodeSelector": {"no": "such-node"}},
    }
