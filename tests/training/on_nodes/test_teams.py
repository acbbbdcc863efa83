"""Two teams on the same nodes, people who stop, resume and leave their jobs, and an interactive session."""

from __future__ import annotations

import signal

from observability.runlog import RunStarted, select
from tests.training.on_nodes.cluster import HALFWAY, SETTINGS, Job, NodeCluster
from training.checkpoint.store import committed_steps
from training.errors import ExitStatus


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


def test_a_deadline_ends_a_job_and_keeps_its_checkpoints(nodes: NodeCluster) -> None:
    with nodes.job("late", "--num-workers", "2", "--epochs", "5000", "--deadline-hours", "0.04") as job:
        assert job.end() == ExitStatus.FAILED, job.said
    assert "DeadlineExceeded" in job.said
    assert "--deadline-hours" in job.said
    job.await_(job.has_no_pods, what="without pods")
    assert committed_steps(job.folder / "checkpoints")
    nodes.delete(job)


def test_a_job_whose_follower_is_interrupted_goes_on(nodes: NodeCluster, undisturbed: Job) -> None:
    with nodes.job("left", "--num-workers", "2", *SETTINGS) as job:
        job.await_step(1)
        job.process.send_signal(signal.SIGINT)
        assert job.end(seconds=60) == ExitStatus.INTERRUPTED
        assert "make logs ENV=dev JOB=left" in job.said
        assert nodes.run("logs", "left").returncode == 0
    assert job.read()["status"]["jobStatus"] == "SUCCEEDED"
    assert job.weights == undisturbed.weights
    nodes.delete(job)


def _resumed_without_loss(job: Job) -> bool:
    """Whether the second driver began at the step at which the first one ended."""
    first, last = job.ends[0], job.ends[-1]
    return first.status == "interrupted" and HALFWAY <= first.step < last.step


_TASK = "import ray; ray.init(); print('ran on', ray.get(ray.remote(num_gpus=1)(lambda: ray.util.get_node_ip_address()).remote()))"


def test_a_session_runs_a_task_and_ends_when_it_is_not_used(nodes: NodeCluster) -> None:
    with nodes.job("notes", "--gpus", "1", "--idle", "1m", command="cluster") as session:
        assert session.end() == 0, session.said
        (head,), (worker,) = session.pods("head"), session.pods("worker")
        said = nodes.sandbox.pods.run(head, "python", "-c", _TASK)
        assert f"ran on {worker['status']['podIP']}" in said
        session.await_(session.has_no_pods, what="ended")
    assert session.read()["status"]["jobStatus"] == "SUCCEEDED"
    nodes.delete(session)
