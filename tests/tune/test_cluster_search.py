"""A search through the real API server, Kueue, KubeRay and scheduler; Ray's drivers and kubelets are fakes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from infra.spec.manifest import Manifest, api_object
from platform_charts.jobs.cluster import WORKER_GROUP
from tests.engines.kubernetes_jobs import node_type
from tests.engines.kubernetes_operators import Operated
from tests.training.cluster.code_of_jobs import NETS
from tests.training.cluster.commands import options_on
from training.cli import main as training
from training.cluster.objects import CONFIG_MAP, RAY_JOB
from training.errors import ExitStatus
from tune.cli import main as tune

GROUP = "ray-train-platform/group"

SEARCH = """
model: { name: "nets:make" }
loop: { epochs: 3 }
scale: { workers: 2, gpu: true }
search:
  trials: 8
  concurrency: 4
  space: { "model.options.width": { integer: [8, 16] } }
"""


@pytest.fixture
def on_cluster(queued: Operated, tmp_path: Path) -> list[str]:
    """Options of a command for the team research."""
    return options_on(queued, tmp_path)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A code folder with a model, and a search of its width."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "nets.py").write_text(NETS, encoding="utf-8")
    (folder / "tune.yaml").write_text(SEARCH, encoding="utf-8")
    return folder


def job_of(queued: Operated, name: str = "first") -> Manifest:
    """The RayJob as the API server has it."""
    found = queued.cluster.read(api_object(*RAY_JOB, name, namespace="research"))
    assert found is not None
    return found


def settings_of(queued: Operated, name: str = "first") -> Manifest:
    """The settings that the pods of a job mount."""
    found = queued.cluster.read(api_object(*CONFIG_MAP, f"{name}-settings", namespace="research"))
    assert found is not None
    read: Manifest = yaml.safe_load(found["data"]["settings.yaml"])
    return read


def submitted(queued: Operated, on_cluster: list[str], code: Path, *options: str) -> Manifest:
    given = ["--name", "first", "--code", str(code), "--group", "a10g", "--detach"]
    assert tune(["search", *given, *options, *on_cluster]) == ExitStatus.DONE
    return job_of(queued)


def test_the_pods_of_all_concurrent_trials_are_admitted_together_and_placed(
    queued: Operated, on_cluster: list[str], code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queued.dashboards.say("first", "RUNNING")
    made = submitted(queued, on_cluster, code)
    said = capsys.readouterr().out
    assert "job first submitted to queue research of dev: 2 worker pods with 8 GPUs" in said
    queued.await_state(made, lambda state: state.stage == "running", what="running")
    pods = queued.pods(made)
    kinds = sorted(node_type(pod) for pod in pods)
    assert kinds == ["head", "submitter", "worker", "worker"]
    nodes = {node["metadata"]["name"]: node["metadata"]["labels"] for node in queued.cluster.items("v1", "Node")}
    placed = {node_type(pod): nodes[pod["spec"]["nodeName"]][GROUP] for pod in pods}
    assert placed == {"head": "heads", "submitter": "heads", "worker": "a10g"}
    assigned = queued.workload(made)["status"]["admission"]["podSetAssignments"]
    (workers,) = [one for one in assigned if one["name"] == WORKER_GROUP]
    assert (workers["count"], workers["resourceUsage"]["nvidia.com/gpu"]) == (2, "8")


def test_a_search_that_runs_is_not_submitted_twice_and_continues_where_it_was_queued_after_a_stop(
    queued: Operated, on_cluster: list[str], code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queued.dashboards.say("first", "RUNNING")
    made = submitted(queued, on_cluster, code)
    queued.await_state(made, lambda state: state.stage == "running", what="running")
    assert tune(["search", "--name", "first", "--code", str(code), *on_cluster]) == ExitStatus.REFUSED
    assert "job first exists in namespace research (running)" in capsys.readouterr().err
    assert training(["stop", "first", *on_cluster]) == ExitStatus.DONE
    assert queued.pods(made) == []
    assert training(["resume", "first", "--set", "search.trials=9", "--detach", *on_cluster]) == ExitStatus.REFUSED
    assert "make tune ENV=dev NAME=first TEAM=research" in capsys.readouterr().err
    assert training(["resume", "first", "--detach", *on_cluster]) == ExitStatus.DONE
    assert "job first is queued again" in capsys.readouterr().out
    assert job_of(queued)["metadata"]["uid"] == made["metadata"]["uid"]


def test_a_search_that_has_ended_is_extended_with_its_settings_its_code_and_its_options(
    queued: Operated, on_cluster: list[str], code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queued.dashboards.say("first", "RUNNING")
    made = submitted(queued, on_cluster, code, "--priority", "low", "--set", "loop.epochs=5")
    queued.await_state(made, lambda state: state.stage == "running", what="running")
    queued.end(made, "SUCCEEDED")
    queued.await_state(made, lambda state: state.stage == "done", what="done")
    assert training(["resume", "first", "--detach", *on_cluster]) == ExitStatus.REFUSED
    assert "search first has ended" in capsys.readouterr().err
    queued.dashboards.say("first", "PENDING")
    more = ["--name", "first", "--set", "search.trials=32", "--detach"]
    assert tune(["search", *more, *on_cluster]) == ExitStatus.DONE
    again = job_of(queued)
    assert again["metadata"]["uid"] != made["metadata"]["uid"]
    assert again["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "training-low"
    assert again["spec"]["entrypoint"] == made["spec"]["entrypoint"]
    settings = settings_of(queued)
    assert (settings["search"]["trials"], settings["loop"]["epochs"]) == (32, 5)
    part = queued.cluster.read(api_object(*CONFIG_MAP, "first-code-0", namespace="research"))
    assert part is not None
    assert [one["uid"] for one in part["metadata"]["ownerReferences"]] == [again["metadata"]["uid"]]


def test_a_job_that_is_no_search_keeps_its_name(
    queued: Operated, on_cluster: list[str], code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queued.dashboards.say("first", "RUNNING")
    train = ["train", "--name", "first", "--detach"]
    assert training([*train, *on_cluster]) == ExitStatus.DONE
    made = job_of(queued)
    queued.await_state(made, lambda state: state.stage == "running", what="running")
    queued.end(made, "SUCCEEDED")
    queued.await_state(made, lambda state: state.stage == "done", what="done")
    assert tune(["search", "--name", "first", "--code", str(code), *on_cluster]) == ExitStatus.REFUSED
    assert "job first exists" in capsys.readouterr().err
    assert job_of(queued)["metadata"]["uid"] == made["metadata"]["uid"]
