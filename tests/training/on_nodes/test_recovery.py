"""The table of docs/ARCHITECTURE.md, "Recovery": real faults in running pods, and the same weights as without them."""

from __future__ import annotations

from infra.spec.manifest import Manifest, api_object
from observability.runlog import RunStarted, TrainingStarted, select
from tests.training.on_nodes import processes
from tests.training.on_nodes.cluster import HALFWAY, SETTINGS, Job, NodeCluster
from training.cluster.objects import has_condition

_TWO = ("--num-workers", "2", *SETTINGS)


def starts(job: Job) -> int:
    """Times that the ranks of a run were started."""
    return len(select(job.events, TrainingStarted))


def drivers(job: Job) -> int:
    """Times that a driver of a run was started."""
    return len(select(job.events, RunStarted))


def test_training_does_not_notice_a_lost_submitter_an_operator_that_restarts_and_a_kubelet_that_hangs(
    nodes: NodeCluster, undisturbed: Job
) -> None:
    with nodes.job("unnoticed", *_TWO) as job:
        job.await_step(50)
        (submitter,) = job.pods("submitter")
        nodes.sandbox.pods.cluster.delete(submitter)
        operator = processes.find(nodes.sandbox.folder, "kuberay-operator")
        operator.kill()
        (worker, _) = job.pods("worker")
        node = worker["spec"]["nodeName"]
        with processes.stopped(nodes.sandbox.folder, "kubelet", node):
            _await_node(nodes, node, is_ready=False)
        _await_node(nodes, node, is_ready=True)
        assert processes.find(nodes.sandbox.folder, "kuberay-operator").pid != operator.pid
        assert job.end() == 0, job.said
    assert [one["metadata"]["name"] for one in job.pods("submitter")] != [submitter["metadata"]["name"]]
    assert (drivers(job), starts(job)) == (1, 1)
    assert job.weights == undisturbed.weights
    nodes.delete(job)


def test_a_killed_worker_is_replaced_and_the_ranks_resume(nodes: NodeCluster, undisturbed: Job) -> None:
    with nodes.job("worker-killed", *_TWO) as job:
        job.await_step(HALFWAY)
        processes.kill_container(job.pods("worker")[0], program="ray start")
        assert job.end() == 0, job.said
    assert (drivers(job), starts(job)) == (1, 2)
    assert job.weights == undisturbed.weights
    nodes.delete(job)


def test_a_head_that_vanishes_is_replaced_and_the_submitter_submits_again(nodes: NodeCluster, undisturbed: Job) -> None:
    with nodes.job("head-killed", *_TWO, "--restarts", "0") as job:
        job.await_step(HALFWAY)
        processes.kill_container(job.pods("head")[0], program="ray start")
        assert job.end() == 0, job.said
    assert drivers(job) == 2
    assert job.weights == undisturbed.weights
    nodes.delete(job)


def test_without_restarts_a_job_ends_with_its_head_and_resume_continues(nodes: NodeCluster, undisturbed: Job) -> None:
    with nodes.job("head-deleted-once", *_TWO, "--restarts", "0") as job:
        job.await_step(HALFWAY)
        nodes.sandbox.pods.cluster.delete(job.pods("head")[0])
        assert job.end() != 0, job.said
    with nodes.job(job.name, command="resume") as resumed:
        assert resumed.end() == 0, resumed.said
    assert resumed.weights == undisturbed.weights
    nodes.delete(resumed)


def _await_node(nodes: NodeCluster, name: str, *, is_ready: bool) -> Manifest:
    """The API server declares a node lost 50 s after its kubelet's last report."""
    node = api_object("v1", "Node", name)
    return nodes.sandbox.pods.cluster.await_(
        node, lambda found: has_condition(found, "Ready") is is_ready, what=f"ready: {is_ready}", seconds=120
    )
