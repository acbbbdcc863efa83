"""The end of real worker groups of Ray Train: one whose worker was dismissed, and one whose worker does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.distribution import RAY
from tests.engines.ray_raylets import Raylet, raylets_of_this_driver
from tests.training.launch.agent.group import eventually
from tests.training.launch.driver import ROOT
from tests.training.runs import small_settings
from training.launch import ray_cluster
from training.launch.agent.coordinator import Coordinator
from training.launch.loop_gate import LoopGate
from training.launch.ray_group import RayGroup

pytestmark = pytest.mark.xdist_group(RAY)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Raylet]:
    """A node with a CPU, in a cluster that this process is a driver of."""
    for name, value in ray_cluster._ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with raylets_of_this_driver(1) as (worker,):
        yield worker


def group_of_one(coordinator: Coordinator, gate: LoopGate, folder: Path) -> RayGroup:
    """A group of one worker, which starts."""
    settings = small_settings(scale={"launcher": "ray"})
    return RayGroup(settings, coordinator, workers=1, folder=folder, is_local=True, gate=gate)


@pytest.mark.usefixtures("node")
def test_the_end_of_a_run_waits_for_a_worker_that_was_dismissed(tmp_path: Path) -> None:
    coordinator = Coordinator(host="127.0.0.1")
    group = group_of_one(coordinator, LoopGate(), tmp_path)
    coordinator.wait(lambda: bool(group.agents), check=lambda: None)
    (worker,) = group.agents
    group.dismiss(worker)
    assert group.is_alive
    group.join()
    assert not group.is_alive


def test_a_group_whose_worker_does_not_answer_calls_ray_no_more_once_the_gate_is_closed(
    node: Raylet, tmp_path: Path
) -> None:
    coordinator, gate = Coordinator(host="127.0.0.1"), LoopGate()
    group = group_of_one(coordinator, gate, tmp_path)
    coordinator.wait(lambda: bool(group.agents), check=lambda: None)
    for process in psutil.Process(node.raylet_pid).children(recursive=True):
        process.suspend()
    coordinator.release()
    assert not eventually(lambda: not group.is_alive, seconds=2)
    assert gate.close(seconds=20)
    assert eventually(lambda: not group.is_alive, seconds=20)
