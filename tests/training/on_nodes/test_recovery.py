"""The table of docs/ARCHITECTURE.md, "Recovery": real faults in running pods, and the same weights as without them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from infra.spec.manifest import Manifest, api_object
from observability.runlog import RunStarted, TrainingStarted, select
from tests.training.on_nodes import processes
from tests.training.on_nodes.cluster import HALFWAY, SETTINGS, Job, NodeCluster
from training.cluster.objects import has_condition

_TWO = ("--num-workers", "2", *SETTINGS)
_EAT = "len(b'x' * (300 << 20))"


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


@contextmanager
def disturbed(nodes: NodeCluster, undisturbed: Job, name: str, *options: str) -> Iterator[Job]:
    """A job halfway; what is done to it in the context must cost nothing: it ends with the weights of one that nothing disturbs."""
    with nodes.job(name, *_TWO, *options) as job:
        job.await_step(HALFWAY)
        yield job
        assert job.end() == 0, job.said
    assert job.weights == undisturbed.weights
    nodes.delete(job)


def test_a_killed_worker_is_replaced_and_the_ranks_resume(nodes: NodeCluster, undisturbed: Job) -> None:
    with disturbed(nodes, undisturbed, "worker-killed") as job:
        processes.kill_container(job.pods("worker")[0], program="ray start")
    assert (drivers(job), starts(job)) == (1, 2)


def test_a_deleted_worker_pod_is_replaced_and_the_ranks_resume(nodes: NodeCluster, undisturbed: Job) -> None:
    with disturbed(nodes, undisturbed, "worker-deleted") as job:
        before = [pod["metadata"]["name"] for pod in job.pods("worker")]
        nodes.sandbox.pods.cluster.delete(job.pods("worker")[0])
        job.await_(lambda: len(job.pods("worker")) == 2, what="with two workers")
        assert [pod["metadata"]["name"] for pod in job.pods("worker")] != before
    assert drivers(job) == 1


def test_a_rank_that_the_kernel_kills_for_want_of_memory_resumes(nodes: NodeCluster, undisturbed: Job) -> None:
    """Another process of the container asks for the memory; the kernel kills the rank, which Ray marks as the first to go."""
    with disturbed(nodes, undisturbed, "out-of-memory") as job:
        worker = job.pods("worker")[0]
        workers = [
            one for one in processes.of_pod(worker) if one.cmdline()[:1] and one.cmdline()[0].startswith("ray::")
        ]
        rank = max(workers, key=lambda one: one.memory_info().rss)
        memory = processes.Memory.of(rank)
        with ThreadPoolExecutor(1) as pool:
            limit = memory.limit_to_use()
            eaten = pool.submit(nodes.sandbox.pods.run, worker, "python", "-c", _EAT)
            job.await_(lambda: memory.kills > 0, what="without memory")
            # At once: the ranks that are started next need some, and without it the whole container ends.
            memory.limit(limit)
            eaten.result()
    assert (drivers(job), starts(job)) == (1, 2)


def test_a_head_that_vanishes_is_replaced_and_the_submitter_submits_again(nodes: NodeCluster, undisturbed: Job) -> None:
    with disturbed(nodes, undisturbed, "head-killed", "--restarts", "0") as job:
        processes.kill_container(job.pods("head")[0], program="ray start")
    assert drivers(job) == 2


def test_a_deleted_head_saves_and_the_job_goes_on_with_a_new_cluster(nodes: NodeCluster, undisturbed: Job) -> None:
    with disturbed(nodes, undisturbed, "head-deleted", "--restarts", "1") as job:
        nodes.sandbox.pods.cluster.delete(job.pods("head")[0])
    assert drivers(job) == 2


def test_without_restarts_a_deleted_head_ends_the_job_which_resume_continues(
    nodes: NodeCluster, undisturbed: Job
) -> None:
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
