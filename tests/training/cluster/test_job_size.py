"""`make resize ENV=…`: from the command line to the annotation that the sizer reads, on a real API server."""

from __future__ import annotations

from infra.spec.cluster_names import MOST_ANNOTATION
from tests.training.cluster.team_cluster import TeamCluster


def submitted(cluster: TeamCluster, name: str, workers: str, *, batch: int = 64) -> None:
    arguments = ["--name", name, "--num-workers", workers, "--batch", str(batch), "--use-gpu", "--group", "a10g"]
    assert cluster.run("train", *arguments, "--detach") == 0


def limit_of(cluster: TeamCluster, name: str) -> str | None:
    job = cluster.job(name)
    assert job is not None
    found: str | None = job["metadata"]["annotations"].get(MOST_ANNOTATION)
    return found


def test_a_job_is_limited_in_whole_pods_and_returns_those_beyond(team_cluster: TeamCluster, name: str) -> None:
    submitted(team_cluster, name, "2-8")
    said = team_cluster.ask("resize", name, "--workers", "4").out
    assert f"job {name}: grows to at most 4 workers when its queue has room" in said
    assert limit_of(team_cluster, name) == "2"
    job = team_cluster.existing_job(name)
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    team_cluster.api.patch(job, {"spec": {"rayClusterSpec": {"workerGroupSpecs": [{**group, "replicas": 4}]}}})
    said = team_cluster.ask("resize", name, "--workers", "2").out
    assert "returns 3 of its 4 worker pods within a minute, commits its next step and continues with 2 workers;" in said
    assert limit_of(team_cluster, name) == "1"


def test_a_number_that_a_job_cannot_have_is_refused_with_the_nearest(team_cluster: TeamCluster, name: str) -> None:
    even, whole, fixed, command = (f"{name}-{letter}" for letter in "abcd")
    for job, workers, batch in ((even, "2-8", 64), (whole, "3-6", 48), (fixed, "4", 64)):
        submitted(team_cluster, job, workers, batch=batch)
    assert team_cluster.run("run", "--name", command, "--detach", "--cmd", "sleep 1") == 0
    for job, workers, status, said in (
        (even, "3", 2, "workers=3: the run can have 2, 4, 8 of"),
        (even, "3", 2, "use 2 or 4"),
        (even, "16", 2, "use 8"),
        (whole, "4", 2, "has 3 of its workers, so it can have 3, 6"),
        (fixed, "2", 2, "scale.workers=4 is not a range"),
        (command, "2", 3, "does not train one model, so its number of workers is fixed"),
    ):
        team_cluster.refuses(status, said, "resize", job, "--workers", workers)
        assert limit_of(team_cluster, job) is None
    team_cluster.ends(even)
    for said in ("is already done", f"make resume ENV=dev JOB={even} TEAM=research SET=scale.workers=2"):
        team_cluster.refuses(3, said, "resize", even, "--workers", "2")
