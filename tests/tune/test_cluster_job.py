"""From the command line to the job of a search: what it asks for, and what is refused before anything is submitted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.spec.manifest import Manifest
from tests.training.cluster.team_cluster import dev_outputs
from tests.tune.search_driver import search_of
from training.errors import ExitStatus
from tune.cli import main
from tune.config import SearchConfiguration
from tune.driver import check


class Asked:
    """`python -m tune search --env dev --out job.yaml` in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "job.yaml"
        outputs = folder / "outputs.json"
        outputs.write_text(json.dumps(dev_outputs()), encoding="utf-8")
        self._cluster = ["--env", "dev", "--team", "research", "--outputs", str(outputs)]

    def __call__(self, *arguments: str, search: dict[str, Any] | None = None, **shared: Any) -> int:  # noqa: ANN401
        """Exit status; `search` are settings of the section, `shared` the other sections."""
        file = self.folder / "mine.yaml"
        written = search_of(epochs=4, shared=shared, **(search or {"concurrency": 2}))
        file.write_text(yaml.safe_dump(written), encoding="utf-8")
        given = ["--config", str(file), "--name", "first", *arguments]
        return main(["search", *given, *self._cluster, "--out", str(self.out)])

    def job(self) -> Manifest:
        """The RayJob."""
        job: Manifest
        _, job = yaml.safe_load_all(self.out.read_text(encoding="utf-8"))
        return job

    def settings(self, *changes: str) -> SearchConfiguration:
        """What the driver on the cluster reads from the ConfigMap."""
        config_map, _ = yaml.safe_load_all(self.out.read_text(encoding="utf-8"))
        file = self.folder / "settings.yaml"
        file.write_text(config_map["data"]["settings.yaml"], encoding="utf-8")
        return SearchConfiguration.read([file], changes, environment={})


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


def size(job: Manifest) -> tuple[int, int]:
    """Worker pods, and the GPUs of each."""
    (workers,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    (container,) = workers["template"]["spec"]["containers"]
    return workers["replicas"], int(container["resources"]["limits"].get("nvidia.com/gpu", 0))


def test_the_driver_on_the_cluster_reads_the_search_that_was_written(asked: Asked) -> None:
    assert asked("--set", "search.trials=6", "--epochs", "7") == ExitStatus.DONE
    read, job = asked.settings(), asked.job()
    assert (read.search.trials, read.search.concurrency, str(read.search.directory)) == (6, 2, "/mnt/runs/searches")
    assert list(read.space.axes) == ["optimizer.learning_rate"]
    shared = read.settings()
    assert (shared.run.name, shared.loop.epochs, shared.scale.address) == ("first", 7, "auto")
    assert job["metadata"]["name"] == "first"
    assert job["metadata"]["labels"]["ray-train-platform/kind"] == "search"


def test_a_search_on_an_existing_cluster_is_checked_without_this_machines_cpus(asked: Asked, tmp_path: Path) -> None:
    assert asked(scale={"workers": 64}, data={"dataset": "digits"}) == ExitStatus.DONE
    changes = [f"run.directory={tmp_path}", "metrics={exporter: none, port: 0}"]
    assert check(asked.settings(*changes)).plan is None


def test_the_job_has_the_workers_of_all_concurrent_trials_and_its_head_the_memory_of_their_actors(asked: Asked) -> None:
    cases: list[tuple[dict[str, Any], dict[str, Any], tuple[int, int]]] = [
        ({"concurrency": 3}, {"workers": 2}, (6, 0)),
        ({"concurrency": 9, "trials": 4}, {"workers": 1}, (4, 0)),  # never more than there are trials
        ({"concurrency": 4}, {"workers": 1, "gpu": True}, (1, 4)),
        ({"concurrency": 8, "gpus_per_worker": 0.25}, {"workers": 1, "gpu": True}, (1, 2)),
        ({"concurrency": 5, "gpus_per_worker": 0.4}, {"workers": 1, "gpu": True}, (1, 3)),
        ({"concurrency": 12, "trials": 12}, {"workers": 1}, (12, 0)),
    ]
    for search, scale, pods in cases:
        assert asked(search=search, scale=scale) == ExitStatus.DONE
        assert size(asked.job()) == pods, search
    head = asked.job()["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    assert head["resources"]["limits"]["memory"] == "9Gi"  # 6, and 12 x 224 MiB


def test_a_worker_costs_what_its_gpus_do(asked: Asked) -> None:
    arguments = ("--use-gpu", "--group", "a10g", "--set", "search.stop.dollars=10")
    cases: list[tuple[dict[str, Any], float]] = [
        ({}, 5.672 / 4),  # a g5.12xlarge has 4 A10G
        ({"gpus_per_worker": 0.5}, 5.672 / 8),
        ({"stop": {"dollars_per_worker_hour": 0.7}}, 0.7),  # as negotiated
    ]
    for search, price in cases:
        assert asked(*arguments, search={"concurrency": 4, **search}, scale={"workers": 1}) == ExitStatus.DONE
        assert asked.settings().search.stop.dollars_per_worker_hour == pytest.approx(price)


def test_what_cannot_run_is_refused_before_anything_is_submitted(
    asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: str, status: int = ExitStatus.WRONG_INPUT, **search: int) -> str:
        assert asked(*arguments, search=search, scale={"workers": 2}) == status
        assert not asked.out.exists()
        return capsys.readouterr().err

    message = said(trials=4)
    assert [part in message for part in ("search.concurrency is not set", "2 pods", "search.concurrency=4")] == [
        True
    ] * 3
    for arguments, part in {
        ("--set", "search.space.optimizer.lr=3"): "search.space.optimizer.lr",
        ("--set", "search.scheduler={name: asha, grace_epochs: 27}"): "grace_epochs=27",
        ("--set", "search.gpus_per_worker=0.5"): "needs scale.gpu=true",
        ("--use-gpu", "--set", "search.gpus_per_worker=0.5"): "NCCL refuses",
        ("--set", "search.stop.dollars=3"): "dollars_per_worker_hour",
        ("--launcher", "torchrun"): "scale.launcher=torchrun",
        ("--dataset", "cifar10", "--data-path", "/home/me"): "data.path=/home/me is on this machine",
    }.items():
        assert part in said(*arguments, concurrency=2)
    gpus = ("--use-gpu", "--num-workers", "4", "--group", "a10g")
    too_many = said(*gpus, status=ExitStatus.REFUSED, concurrency=100, trials=100)
    assert "400 GPUs (100 x 4) need 100 nodes of 4" in too_many


def test_an_option_of_a_cluster_without_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for option in (("--group", "a10g"), ("--detach",), ("--out", "-")):
        assert main(["search", *option]) == ExitStatus.WRONG_INPUT
        assert f"{option[0]} needs a cluster\n  remedy: name its environment: ENV=… (--env)" in capsys.readouterr().err
