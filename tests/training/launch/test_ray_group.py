"""Room for worker groups on a real Ray cluster of several nodes, and the end of groups: a dismissed worker, one that does not answer."""

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
from training.launch.ray_reservation import Reservation

pytestmark = pytest.mark.xdist_group(RAY)


NEED = {"CPU": 1.0}


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Raylet]]:
    """Three nodes with a CPU each, in a cluster that this process is a driver of."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ray_cluster._ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", str(ROOT))
        with raylets_of_this_driver(3) as workers:
            yield workers


@pytest.mark.usefixtures("nodes")
def test_of_two_runs_that_do_not_fit_together_one_gets_all_of_its_room() -> None:
    first, second = Reservation(NEED, workers=2), Reservation(NEED, workers=2)
    assert eventually(lambda: first.is_ready, seconds=30)
    assert not second.is_ready
    first.release()
    assert eventually(lambda: second.is_ready, seconds=30)
    second.release()


@pytest.mark.usefixtures("nodes")
def test_room_that_is_asked_for_no_more_is_not_taken() -> None:
    too_much = Reservation(NEED, workers=4)
    assert not eventually(lambda: too_much.is_ready, seconds=2.0)
    too_much.release()
    fits = Reservation(NEED, workers=3)
    assert eventually(lambda: fits.is_ready, seconds=30)
    fits.release()


def group_of_one(coordinator: Coordinator, gate: LoopGate, folder: Path) -> RayGroup:
    """A group of one worker, which starts."""
    settings = small_settings(scale={"launcher": "ray"})
    return RayGroup(settings, coordinator, workers=1, folder=folder, is_local=True, gate=gate)


@pytest.mark.extended
@pytest.mark.usefixtures("nodes")
def test_the_end_of_a_run_waits_for_a_worker_that_was_dismissed(tmp_path: Path) -> None:
    coordinator = Coordinator(host="127.0.0.1")
    group = group_of_one(coordinator, LoopGate(), tmp_path)
    coordinator.wait(lambda: bool(group.agents), check=lambda: None)
    (worker,) = group.agents
    group.dismiss(worker)
    assert group.is_alive
    group.join()
    assert not group.is_alive


@pytest.mark.extended
def test_a_group_without_an_answer_calls_ray_no_more_once_the_gate_is_closed(
    nodes: list[Raylet], tmp_path: Path
) -> None:
    """The last test of this file, because the processes of the nodes stay suspended."""
    coordinator, gate = Coordinator(host="127.0.0.1"), LoopGate()
    group = group_of_one(coordinator, gate, tmp_path)
    coordinator.wait(lambda: bool(group.agents), check=lambda: None)
    for node in nodes:
        for process in psutil.Process(node.raylet_pid).children(recursive=True):
            process.suspend()
    coordinator.release()
    assert not eventually(lambda: not group.is_alive, seconds=2)
    assert gate.close(seconds=20)
    assert eventually(lambda: not group.is_alive, seconds=20)
