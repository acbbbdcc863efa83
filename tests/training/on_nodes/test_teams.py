"""Two teams on the same nodes, people who stop and resume their jobs, and an upgrade that holds the queues while a job trains."""

from __future__ import annotations

import pytest

from infra.lifecycle.cli import main
from infra.lifecycle.sandbox.layout import kubeconfig_in
from infra.spec.manifest import api_object
from observability.runlog import RunStarted, select
from tests.training.on_nodes.cluster import HALFWAY, SETTINGS, Job, NodeCluster


def test_a_preempted_job_saves_waits_and_ends_with_the_same_weights(nodes: NodeCluster, undisturbed: Job) -> None:
    """Each team has one GPU of its own; the first job uses the other's as well, which wants it back."""
    for team in ("research", "platform"):
        nodes.give(team, gpus=1)
    with nodes.job("borrows", "--num-workers", "2", "--use-gpu", *SETTINGS) as job:
        job.await_step(HALFWAY)
        with nodes.job("reclaims", "--num-workers", "1", "--use-gpu", team="platform") as other:
            job.await_(lambda: not job.pods("worker"), what="preempted")
            assert other.end() == 0, other.said
        assert job.end() == 0, job.said
    assert "queued" in job.said[job.said.index("running") :]
    assert len(select(job.events, RunStarted)) == 2
    assert _resumed_without_loss(job)
    assert job.weights == undisturbed.weights
    nodes.delete(job, other)


def test_a_stopped_job_resumes_where_it_stopped(nodes: NodeCluster, undisturbed: Job) -> None:
    with nodes.job("stopped", "--num-workers", "2", *SETTINGS) as job:
        job.await_step(HALFWAY)
        stopped = nodes.run("stop", "stopped")
        assert stopped.returncode == 0, stopped.stderr
        assert job.end() != 0, job.said
        job.await_(job.has_no_pods, what="without pods")
    with nodes.job("stopped", command="resume") as resumed:
        assert resumed.end() == 0, resumed.said
    assert _resumed_without_loss(resumed)
    assert resumed.weights == undisturbed.weights
    nodes.delete(resumed)


def _resumed_without_loss(job: Job) -> bool:
    """Whether the second driver began at the step at which the first one ended."""
    first, last = job.ends[0], job.ends[-1]
    return first.status == "interrupted" and HALFWAY <= first.step < last.step


def test_a_job_saves_for_an_upgrade_waits_and_ends_with_the_same_weights(
    nodes: NodeCluster, undisturbed: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps of an upgrade that replace nodes: hold and drain the queues, empty a node, give the queues back."""
    monkeypatch.setenv("RTP_STACK_OUTPUTS", str(nodes.sandbox.folder / "outputs.json"))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig_in(nodes.sandbox.folder)))
    with nodes.job("rolled", "--num-workers", "2", *SETTINGS) as job:
        job.await_step(HALFWAY)
        node = api_object("v1", "Node", job.pods("worker")[0]["spec"]["nodeName"])
        assert main(["hold", "--env", "dev", "--drain", "--hours", "0.2"]) == 0
        try:
            nodes.sandbox.pods.cluster.patch(node, {"spec": {"unschedulable": True}})
            job.await_(job.has_no_pods, what="off its nodes")
            assert job.process.poll() is None, job.said
            nodes.sandbox.pods.cluster.patch(node, {"spec": {"unschedulable": None}})
        finally:
            assert main(["release-queues", "--env", "dev"]) == 0
        assert job.end() == 0, job.said
    assert "queued" in job.said[job.said.index("running") :]
    assert "Traceback" not in job.said
    assert len(select(job.events, RunStarted)) == 2
    first, last = job.ends[0], job.ends[-1]
    assert (first.status, HALFWAY <= first.step < last.step) == ("interrupted", True)
    assert job.weights == undisturbed.weights
    nodes.delete(job)
