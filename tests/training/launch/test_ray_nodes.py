"""Training on a multi-host Ray cluster, as in a RayJob: the driver on the head, a rank on each worker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from observability.runlog import (
    Notice,
    Restored,
    RunEnded,
    RunStarted,
    Step,
    TrainingStarted,
    WorkersFailed,
    read_all,
    select,
)
from tests.engines.hosts import Host, hosts
from tests.engines.ray_cluster import short_folder
from tests.engines.ray_nodes import RayNodes, ray_nodes
from tests.training.launch.driver import Driver, is_commit
from tests.training.launch.ranks import run_world
from tests.training.runs import small_settings
from training.config.load import render
from training.config.schema import TrainingSettings


@pytest.fixture(scope="module")
def machines() -> Iterator[list[Host]]:
    with hosts(4) as found:
        yield list(found)


@pytest.fixture(scope="module")
def nodes(machines: list[Host]) -> Iterator[RayNodes]:
    """A cluster with a head and two workers; every test leaves it with as many."""
    with short_folder() as folder, ray_nodes(machines[:3], folder) as started:
        yield started


def drive(nodes: RayNodes, settings: TrainingSettings, folder: Path) -> Driver:
    """Start the driver on the head of the cluster; the run is `folder/run`."""
    configured = settings.model_copy(
        update={
            "run": settings.run.model_copy(update={"directory": folder, "name": "run"}),
            "scale": settings.scale.model_copy(update={"launcher": "ray", "address": nodes.address}),
        }
    )
    file = folder / "settings.yaml"
    file.write_text(render(configured), encoding="utf-8")
    return Driver(
        "train",
        "--config",
        str(file),
        run=folder / "run",
        prefix=nodes.head.prefix,
        environment=nodes.environment,
    )


@pytest.mark.long
def test_a_run_on_two_hosts_ends_in_the_weights_of_a_run_on_one(nodes: RayNodes, tmp_path: Path) -> None:
    settings = small_settings(scale={"launcher": "torchrun", "workers": 2})
    with drive(nodes, settings, tmp_path) as driver:
        ended = driver.end()
    assert ended.status == 0, ended.err
    (end,) = select(read_all(tmp_path / "run"), RunEnded)
    assert end.status == "done"
    assert end.weights_sha256 == run_world(settings, tmp_path / "reference").weights_sha256


@pytest.mark.long
def test_a_run_that_loses_a_host_resumes_when_another_one_joins(
    nodes: RayNodes, machines: list[Host], tmp_path: Path
) -> None:
    settings = small_settings(scale={"launcher": "torchrun", "workers": 2}, loop={"epochs": 40})
    with drive(nodes, settings, tmp_path) as driver:
        assert driver.wait_for(is_commit)
        nodes.lose(machines[2])
        nodes.join(machines[3])
        ended = driver.end()
    assert ended.status == 0, ended.err
    events = read_all(tmp_path / "run")
    assert len(select(events, RunStarted)) == 1
    assert len(select(events, TrainingStarted)) == 2
    assert select(events, Restored)[0].step > 0
    assert select(events, RunEnded)[-1].weights_sha256 == run_world(settings, tmp_path / "reference").weights_sha256


@pytest.mark.long
def test_a_run_leaves_a_node_that_is_being_drained_and_repeats_no_step(
    nodes: RayNodes, machines: list[Host], tmp_path: Path
) -> None:
    leaving = nodes.workers[-1]
    spare = next(host for host in machines[1:] if host not in nodes.workers)
    hurry = tmp_path / "hurry"
    settings = small_settings(
        model={"name": "tests.training.faults.models:paced", "options": {"hurry": str(hurry)}},
        scale={"launcher": "torchrun", "workers": 2},
        # Long enough for a node to join, and for a worker to start on it.
        loop={"epochs": 200, "log_sample_ids": True},
        checkpoint={"every_steps": 100_000, "keep_best": 0},
    )
    with drive(nodes, settings, tmp_path) as driver:
        assert driver.wait_for(lambda event: isinstance(event, Step) and event.step >= 20)
        nodes.join(spare)
        asked = time.time()
        nodes.drain(leaving, seconds=300)
        assert driver.wait_for(lambda event: isinstance(event, TrainingStarted) and event.start_step > 0)
        hurry.touch()
        ended = driver.end()
    nodes.lose(leaving)
    assert ended.status == 0, ended.err
    events = read_all(tmp_path / "run")
    first, second = select(events, TrainingStarted)
    assert first.start_step == 0
    # The node is there for another five minutes: nobody waits for its end, as there is room elsewhere.
    assert second.time - asked < 60
    steps = [event.step for event in select(events, Step)]
    assert steps == list(range(1, second.total_steps + 1))
    (moved,) = [event.message for event in select(events, Notice) if "drained" in event.message]
    assert moved.startswith(("the node of rank 0 is being drained", "the node of rank 1 is being drained"))
    assert moved.endswith(f"saved step {second.start_step}, continuing from it")
    assert not select(events, WorkersFailed)
    assert select(events, RunEnded)[-1].weights_sha256 == run_world(settings, tmp_path / "reference").weights_sha256
