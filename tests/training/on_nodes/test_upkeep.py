"""What a platform team does to a cluster while a job trains on it: an upgrade that holds the queues, and a teardown."""

from __future__ import annotations

import pytest

from infra.lifecycle.cli import main
from infra.lifecycle.sandbox.layout import kubeconfig_in
from infra.lifecycle.teardown.workloads import delete_workloads, find_workloads
from infra.spec.manifest import api_object
from observability.runlog import RunStarted, select
from tests.training.on_nodes.cluster import HALFWAY, SETTINGS, Job, NodeCluster
from training.checkpoint.store import committed_steps


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


def test_a_teardown_ends_a_job_which_has_saved_its_last_step(nodes: NodeCluster) -> None:
    said = list[str]()
    with nodes.job("torn-down", "--num-workers", "2", "--epochs", "5000") as job:
        job.await_step(HALFWAY)
        delete_workloads(nodes.sandbox.pods.cluster, say=said.append)
        job.await_(job.has_no_pods, what="without pods")
        assert job.end() != 0, job.said
    assert find_workloads(nodes.sandbox.pods.cluster) == []
    (end,) = job.ends
    assert end.status == "interrupted"
    assert committed_steps(job.folder / "checkpoints")[-1] == end.step >= HALFWAY
