"""An elastic job on real nodes: it grows into idle quota and returns it without being preempted; pods, Workloads and messages agree."""

from __future__ import annotations

from infra.spec.cluster_names import MONITORING_NAMESPACE, SIZING_ANNOTATION
from observability.runlog import RunStarted, TrainingStarted, WorkersMoved, select
from tests.faults.proof import assert_every_sample_once
from tests.training.on_nodes.cluster import Job, NodeCluster
from training.cluster.objects import POD, has_condition

_SETTINGS = ("--epochs", "3500", "--set", "checkpoint.every_steps=100", "--set", "loop.log_sample_ids=true")
"""Minutes of training on two cores: the sizer polls every ten seconds, and each move starts new ranks."""


def _worlds(job: Job) -> list[int]:
    """World size of each start of the ranks."""
    return [one.world for one in select(job.events, TrainingStarted)]


def _annotation(job: Job) -> str:
    return str(job.read()["metadata"]["annotations"].get(SIZING_ANNOTATION, ""))


def _admitted(job: Job) -> list[int]:
    """Worker pods of each Workload that has quota."""
    holding = [one for one in job.workloads() if has_condition(one, "Admitted") and not has_condition(one, "Finished")]
    return [sets["count"] for one in holding for sets in one["spec"]["podSets"] if sets["name"] == "workers"]


def _is_sized(job: Job, pods: int, *, starts: int) -> bool:
    """Whether the job has that many worker pods, quota for them, and as many ranks, which were started that often."""
    worlds = _worlds(job)
    has_pods = len(job.pods("worker")) == pods and _admitted(job) == [pods]
    return has_pods and len(worlds) == starts and worlds[-1] == pods


def test_an_elastic_job_grows_into_idle_quota_and_returns_it_without_being_preempted(nodes: NodeCluster) -> None:
    """Each team has one GPU of its own; the owner of the second one takes it back, and leaves it again."""
    for team in ("research", "platform"):
        nodes.give(team, gpus=1)
    with nodes.job("elastic", "--num-workers", "1-2", "--use-gpu", *_SETTINGS) as job:
        job.await_step(1)
        job.await_(lambda: _worlds(job) == [1, 2] and _is_sized(job, 2, starts=2), what="grown")
        assert _annotation(job) == "2 of 1-2 worker pods"
        with nodes.job("owner", "--num-workers", "1", "--use-gpu", team="platform") as owner:
            job.await_(lambda: _is_sized(job, 1, starts=3), what="returned")
            assert _annotation(job) == "1 of 1-2 worker pods; returned 1 to platform/owner"
            assert owner.end() == 0, owner.said
        job.await_(lambda: _is_sized(job, 2, starts=4), what="grown again")
        _resizes(nodes, job, 1)
        job.await_(lambda: _is_sized(job, 1, starts=5), what="limited to 1 worker")
        _resizes(nodes, job, 2)
        job.await_(lambda: _is_sized(job, 2, starts=6), what="grown without its limit")
        assert job.end() == 0, job.said
    events = job.events
    assert len(select(events, RunStarted)) == 1
    assert _worlds(job) == [1, 2, 1, 2, 1, 2]
    moved = [one.step for one in select(events, WorkersMoved)]
    assert [one.start_step for one in select(events, TrainingStarted)] == [0, *moved]
    assert_every_sample_once(job.folder, events)
    assert "elastic jobs of other teams are returning GPUs of the team's quota" in owner.said
    assert "1-2 worker pods; returns 1 to platform/owner" in job.said
    assert "queued" not in job.said[job.said.index("running") :]
    _sizer_never_restarted(nodes)
    nodes.delete(job, owner)


def _resizes(nodes: NodeCluster, job: Job, workers: int) -> None:
    """Run `make resize ENV=…`, which says what becomes of the job."""
    done = nodes.run("resize", job.name, "--workers", str(workers), team=job.team)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"job {job.name}: "), done.stdout


def _sizer_never_restarted(nodes: NodeCluster) -> None:
    """The program that sized the job is the environment's own Deployment, in a pod with its account and network policy."""
    pods = nodes.sandbox.pods.cluster.items(*POD, namespace=MONITORING_NAMESPACE)
    (sizer,) = [pod for pod in pods if pod["metadata"]["name"].startswith("job-sizer-")]
    assert [one["restartCount"] for one in sizer["status"]["containerStatuses"]] == [0]
