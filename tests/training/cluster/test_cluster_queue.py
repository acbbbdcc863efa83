"""Jobs in the queues of two teams, and one that loses its head, with the real Kueue, KubeRay and scheduler; Ray's drivers are fakes.

In the dev environment each of the teams owns one of the two nodes of the group a10g, with 4 GPUs, and may borrow the
other's.
"""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from infra.spec.cluster_names import KUEUE_API
from infra.spec.manifest import Manifest
from platform_charts.jobs.request import JobRequest
from tests.engines.kubernetes_jobs import job, node_type
from tests.engines.kubernetes_operators import Operated
from tests.engines.ray_dashboard import dashboards
from tests.training.cluster.follower import Follower
from tests.waiting import wait_until
from training.cluster import control
from training.cluster import follow as following
from training.cluster.state import JobState
from training.errors import ExitStatus

_SECONDS = 60


def gpus(name: str, team: str, count: int, **fields: object) -> JobRequest:
    """A job on so many of the group's GPUs."""
    return job(name, team=team, group="a10g", workers=count, **fields)


def is_admitted(state: JobState) -> bool:
    return state.stage in {"starting", "running"}


def is_queued(state: JobState) -> bool:
    return state.stage == "queued" and "quota" in state.reason


def admitted(queued: Operated, request: JobRequest) -> Manifest:
    """Submit a job and wait until all its pods run: the head, the workers, and the submitter, which comes last."""
    submitted = queued.submit(request)

    def all_run() -> bool:
        pods = queued.pods(submitted)
        has_submitter = any("ray.io/node-type" not in pod["metadata"]["labels"] for pod in pods)
        return has_submitter and all(pod["status"].get("phase") == "Running" for pod in pods)

    wait_until(all_run, seconds=_SECONDS)
    return submitted


def test_a_job_within_its_quota_gets_all_its_pods_on_the_nodes_of_their_groups(queued: Operated) -> None:
    submitted = admitted(queued, gpus("within", "research", 8))
    workers = queued.pods(submitted, labels="ray.io/node-type=worker")
    assert sorted(pod["spec"]["nodeName"] for pod in workers) == ["a10g-0", "a10g-1"]
    # Kueue writes the group that it chose into the pods.
    assert {pod["spec"]["nodeSelector"]["ray-train-platform/group"] for pod in workers} == {"a10g"}
    [head] = queued.pods(submitted, labels="ray.io/node-type=head")
    assert head["spec"]["nodeName"].startswith("heads-")
    assert head["spec"]["nodeSelector"] == {"ray-train-platform/group": "heads"}
    [workload] = queued.cluster.items(KUEUE_API, "Workload", namespace="research")
    assigned = workload["status"]["admission"]["podSetAssignments"]
    flavors = {one["name"]: set(one["flavors"].values()) for one in assigned}
    assert flavors == {"head": {"heads"}, "workers": {"a10g"}, "submitter": {"heads"}}


def test_jobs_over_the_quota_are_queued_as_a_whole_by_priority_until_quota_is_free(queued: Operated) -> None:
    first = admitted(queued, gpus("first", "research", 8, priority="high"))
    normal = queued.submit(gpus("normal", "research", 8))
    high = queued.submit(gpus("high", "research", 8, priority="high"))
    for job_, position in ((high, 1), (normal, 2)):
        state = queued.await_state(job_, is_queued, what="queued")
        assert "nvidia.com/gpu in flavor a10g" in state.reason
        assert "flavor t4" not in state.reason
        found = queued.look(job_).position
        assert found is not None
        assert found.in_team == position
        assert queued.pods(job_) == []
    queued.remove(first)
    queued.await_state(high, is_admitted, what="admitted")


def test_borrowed_quota_is_reclaimed_whatever_the_priority(queued: Operated) -> None:
    borrower = admitted(queued, gpus("borrower", "research", 8, priority="high"))
    owner = queued.submit(gpus("owner", "platform", 4, priority="low"))
    queued.await_state(owner, is_admitted, what="admitted")
    state = queued.await_state(borrower, lambda state: state.stage == "queued", what="queued again")
    assert "reclamation" in state.reason or "quota" in state.reason


def test_a_team_without_idle_gpus_preempts_its_own_jobs_of_lower_priority_only(queued: Operated) -> None:
    admitted(queued, gpus("others", "platform", 4))
    low = admitted(queued, gpus("low", "research", 4, priority="low"))
    equal = queued.submit(gpus("equal", "research", 4, priority="low"))
    queued.await_state(equal, is_queued, what="queued")
    assert is_admitted(queued.look(low))
    high = queued.submit(gpus("high", "research", 4, priority="high"))
    queued.await_state(high, is_admitted, what="admitted")
    queued.await_state(low, lambda state: state.stage == "queued", what="queued again")


def test_a_stopped_job_releases_its_quota_and_a_resumed_one_is_queued_again(queued: Operated) -> None:
    first = admitted(queued, gpus("first", "research", 8))
    second = queued.submit(gpus("second", "research", 8))
    queued.await_state(second, is_queued, what="queued")
    control.stop(queued.api("research"), first)
    stopped = queued.await_state(first, lambda state: state.stage == "stopped", what="stopped")
    assert stopped.status is ExitStatus.INTERRUPTED
    assert queued.pods(first) == []
    queued.await_state(second, is_admitted, what="admitted")
    control.reactivate(queued.api("research"), first)
    queued.await_state(first, is_queued, what="queued")
    queued.remove(second)
    queued.await_state(first, is_admitted, what="admitted")


def test_a_job_is_followed_from_the_queue_to_its_end_and_releases_its_quota(
    queued: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_POLL_SECONDS", 0.2)
    first = admitted(queued, gpus("first", "research", 8))
    second = queued.submit(gpus("second", "research", 8, restarts=0))
    follower = Follower(queued.api("research"), namespace="research", name="second", patience=_SECONDS)
    follower.sees("queued")
    follower.sees("position 1: ")
    queued.dashboards.say("first", "RUNNING")
    queued.await_state(first, lambda state: state.stage == "running", what="running")
    queued.end(first, "SUCCEEDED")
    ended = queued.await_state(first, lambda state: state.stage == "done", what="done")
    assert ended.status is ExitStatus.DONE
    follower.sees("starting the pods")
    queued.remove(first)  # its pods keep the nodes for another minute, until their last metrics are scraped
    queued.dashboards.say("second", "RUNNING")
    follower.sees("running")
    reported = ("FAILED", "Job entrypoint command failed with exit code 3. No logs available.")
    queued.dashboards.say("second", *reported)
    follower.sees("the driver has ended")  # and its submitter has not
    queued.end(second, *reported)
    assert follower.end().status is ExitStatus.REFUSED
    assert "the driver exited with code 3" in follower.shown
    assert follower.shown.count("starting the pods") == 1


HEAD, SUBMITTER = "ray.io/node-type=head", "batch.kubernetes.io/job-name"


def running(queued: Operated, name: str) -> Manifest:
    submitted = queued.submit(job(name, team="research", group="a10g", workers=8))
    queued.dashboards.say(name, "RUNNING")
    queued.await_state(submitted, lambda state: state.stage == "running", what="running")
    return submitted


def status(queued: Operated, submitted: Manifest) -> Manifest:
    found = queued.cluster.existing(submitted)
    current: Manifest = found["status"]
    return current


def test_a_head_that_is_gone_is_replaced_in_the_same_attempt_and_gets_the_job_again(queued: Operated) -> None:
    submitted = running(queued, "beheaded")
    before = status(queued, submitted)
    (head,) = queued.pods(submitted, labels=HEAD)
    (submitter,) = queued.pods(submitted, labels=f"{SUBMITTER}=beheaded")
    queued.dashboards.forget("beheaded")  # the new head's Ray knows no job
    queued.cluster.delete(head)
    # Its probe, or the broken connection, ends the submitter; the Job starts another, which submits the job again.
    ended = {key: submitter["metadata"][key] for key in ("name", "namespace")}
    ended["annotations"] = {"ray-train-platform/ends": "Failed"}
    queued.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": ended}, manager="fake-driver")

    def has_successors() -> bool:
        live = [pod for pod in queued.pods(submitted) if pod["status"].get("phase") == "Running"]
        uids = {node_type(pod): pod["metadata"]["uid"] for pod in live}
        before = {head["metadata"]["uid"], submitter["metadata"]["uid"]}
        return {"head", "submitter"} <= uids.keys() and not before & {uids["head"], uids["submitter"]}

    wait_until(has_successors, seconds=_SECONDS)
    queued.dashboards.say("beheaded", "RUNNING")
    queued.await_state(submitted, lambda state: state.stage == "running", what="running")
    after = status(queued, submitted)
    assert [after[key] for key in ("rayClusterName", "jobId")] == [before[key] for key in ("rayClusterName", "jobId")]
    assert after.get("failed", 0) == 0, "the same attempt"


def test_a_head_that_is_asked_to_end_saves_and_its_job_resumes_on_a_new_cluster(queued: Operated) -> None:
    submitted = running(queued, "asked")
    known = {"", status(queued, submitted)["rayClusterName"]}
    # The preStop hook of a head stops the run, whose driver then exits with 130.
    queued.end(submitted, "FAILED", "Job entrypoint command failed with exit code 130.")
    wait_until(lambda: status(queued, submitted).get("rayClusterName", "") not in known, seconds=_SECONDS)
    queued.dashboards.say("asked", "RUNNING")
    queued.await_state(submitted, lambda state: state.stage == "running", what="running again")
    resumed = queued.cluster.existing(submitted)
    words = shlex.split(resumed["spec"]["entrypoint"])
    assert words[words.index("--name") + 1] == "asked"
    assert resumed["status"]["failed"] == 1


def test_the_submitters_probe_fails_once_the_head_does_not_know_the_job(queued: Operated) -> None:
    submitted = running(queued, "probed")
    (pod,) = queued.pods(submitted, labels=f"{SUBMITTER}=probed")
    (container,) = pod["spec"]["containers"]
    _, *script = container["livenessProbe"]["exec"]["command"]
    for known, returned in (("probed", 0), ("another", 1)):
        with dashboards() as head:
            head.say(known, "RUNNING")
            environment = {
                "RAY_DASHBOARD_ADDRESS": head.address.removeprefix("http://"),
                "RAY_JOB_SUBMISSION_ID": status(queued, submitted)["jobId"],
                "RAY_AUTH_TOKEN": "token",
            }
            assert {one["name"] for one in container["env"]} > set(environment)
            command = [sys.executable, *script]
            answer = subprocess.run(command, env=environment, check=False, capture_output=True, timeout=90)
        assert answer.returncode == returned, answer.stderr
