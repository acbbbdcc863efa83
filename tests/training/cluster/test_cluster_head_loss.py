"""A job that loses its head, with the real KubeRay and Kueue; Ray's drivers are fakes."""

from __future__ import annotations

import shlex
import subprocess
import sys

from infra.spec.manifest import Manifest
from tests.engines.kubernetes_jobs import job, node_type
from tests.engines.kubernetes_operators import Operated
from tests.engines.ray_dashboard import dashboards
from tests.training.cluster.team_cluster import wait_until

_SECONDS = 60
HEAD, SUBMITTER = "ray.io/node-type=head", "batch.kubernetes.io/job-name"


def running(queued: Operated, name: str) -> Manifest:
    """A job whose driver runs."""
    submitted = queued.submit(job(name, team="research", group="a10g", workers=8))
    queued.dashboards.say(name, "RUNNING")
    queued.await_state(submitted, lambda state: state.stage == "running", what="running")
    return submitted


def status(queued: Operated, submitted: Manifest) -> Manifest:
    found = queued.cluster.read(submitted)
    assert found is not None
    current: Manifest = found["status"]
    return current


def test_a_head_that_is_gone_is_replaced_and_one_that_is_asked_to_end_saves_for_a_new_cluster(queued: Operated) -> None:
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

    # The preStop hook of a head stops the run, whose driver then exits with 130.
    queued.end(submitted, "FAILED", "Job entrypoint command failed with exit code 130.")
    known = {"", after["rayClusterName"]}
    wait_until(lambda: status(queued, submitted).get("rayClusterName", "") not in known, seconds=_SECONDS)
    queued.dashboards.say("beheaded", "RUNNING")
    queued.await_state(submitted, lambda state: state.stage == "running", what="running again")
    resumed = queued.cluster.read(submitted)
    assert resumed is not None
    words = shlex.split(resumed["spec"]["entrypoint"])
    assert words[words.index("--name") + 1] == "beheaded"
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
