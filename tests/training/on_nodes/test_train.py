"""`make train` from the queue to its end, on pods that run."""

from __future__ import annotations

import json

from infra.spec.manifest import api_object
from observability.runlog import Evaluated, Notice, TrainingStarted, select
from tests.infra.lifecycle.sandbox_services.mlflow_api import mlflow_answer
from tests.training.on_nodes.cluster import Job, NodeCluster
from training.checkpoint.store import verify_run
from training.device import FAKE_GPUS

_LOOKS = f"id -u; touch /probe 2>&1; echo ${FAKE_GPUS}"


def test_a_job_with_gpus_trains_and_leaves_its_run_everywhere(nodes: NodeCluster) -> None:
    with nodes.job("digits", "--num-workers", "2", "--use-gpu", "--set", "checkpoint.every_steps=100") as job:
        job.await_step(1)
        assert _is_restricted(nodes, job.team)
        (worker,) = job.pods("worker")
        assert worker["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"
        user, denied, devices = nodes.sandbox.pods.run(worker, "bash", "-c", _LOOKS).splitlines()
        assert user == "1000"
        assert "Read-only file system" in denied
        assert len(devices.split(",")) == 2
        _has_series(nodes, job)
        assert job.end() == 0, job.said
    assert job.read()["status"]["jobStatus"] == "SUCCEEDED"
    events = job.events
    assert select(events, TrainingStarted)[0].world == 2
    assert any("training on the CPU" in event.message for event in select(events, Notice))
    assert [one for one in select(events, Evaluated) if one.split == "test"][-1].metrics["accuracy"] >= 0.97
    _verifies(job)
    _is_in_mlflow(nodes, job)
    _has_logs(nodes, job)
    nodes.delete(job)


def _is_restricted(nodes: NodeCluster, namespace: str) -> bool:
    """Whether the API server refuses pods of the namespace that break Pod Security's rules, also those that KubeRay makes."""
    found = nodes.sandbox.pods.cluster.read(api_object("v1", "Namespace", namespace))
    assert found is not None
    return bool(found["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted")


def _has_series(nodes: NodeCluster, job: Job) -> None:
    """Prometheus has the steps of the running job, from its PodMonitors."""
    query = f'max by (training_job) (ray_rtp_train_step{{training_job="{job.name}"}})'
    job.await_(lambda: nodes.sandbox.prometheus.query(query), what="in Prometheus")
    (found,) = nodes.sandbox.prometheus.query(query)
    assert float(found["value"][1]) >= 1


def _verifies(job: Job) -> None:
    """The checkpoints in the run's folder are good; its bucket answers the team's service account only."""
    problems = dict(verify_run(job.folder))
    assert problems
    assert not any(problems.values()), problems


def _is_in_mlflow(nodes: NodeCluster, job: Job) -> None:
    """The run, its tests' accuracy and its model, by the API that a team's pod may use."""
    made = json.loads(mlflow_answer(nodes.sandbox, "experiments/search", body={"max_results": 10}))["experiments"]
    wanted = {"filter": f"attributes.run_name = '{job.name}'", "experiment_ids": [one["experiment_id"] for one in made]}
    (run,) = json.loads(mlflow_answer(nodes.sandbox, "runs/search", body=wanted))["runs"]
    assert run["info"]["status"] == "FINISHED"
    figures = {one["key"]: one["value"] for one in run["data"]["metrics"]}
    assert figures["test/accuracy"] >= 0.97


def _has_logs(nodes: NodeCluster, job: Job) -> None:
    """`make logs` shows the driver's log of a job that has ended; nothing ships the logs of its ranks in a sandbox."""
    done = nodes.run("logs", job.name)
    assert done.returncode == 0, done.stderr
    assert f"weights hash {job.weights[:16]}" in done.stdout
