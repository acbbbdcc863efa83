"""The end of a real worker group of Ray Train, whose worker is frozen: its node neither answers nor closes its connections."""

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


def test_a_group_whose_worker_does_not_answer_calls_ray_no_more_once_the_gate_is_closed(
    node: Raylet, tmp_path: Path
) -> None:
    coordinator, gate = Coordinator(host="127.0.0.1"), LoopGate()
    group = RayGroup(
        small_settings(scale={"launcher": "ray"}), coordinator, workers=1, folder=tmp_path, is_local=True, gate=gate
    )
    coordinator.wait(lambda: bool(group.agents), check=lambda: None)
    for process in psutil.Process(node.raylet_pid).children(recursive=True):
        process.suspend()
    coordinator.release()
    assert not eventually(lambda: not group.is_alive, seconds=2)
    assert gate.close(seconds=20)
    assert eventually(lambda: not group.is_alive, seconds=20)
