"""Ranks under agents: who survives what, and what the next attempt starts from. Real processes and signals."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import psutil
import pytest

from observability.runlog import Restored, read_all, select
from tests.training.launch.agent.group import Group, agents, eventually
from tests.training.launch.ranks import run_world
from tests.training.runs import small_settings, steps_of
from training import failures
from training.callbacks import sample_ledger as ledger
from training.checkpoint.store import committed_steps
from training.config.resize import resized
from training.config.schema import TrainingSettings
from training.launch.task import WorkersFailedError

FAULTS = "tests.training.faults.models:"
STEP = 13
"""Of the failure; checkpoints are due every 5 steps."""


def settings(fault: str, folder: Path, *, rank: int = 1, **sections: dict[str, Any]) -> TrainingSettings:
    """Two ranks, of which one fails once, after the first checkpoint."""
    options = {"step": STEP, "rank": rank, "trace": str(folder / "failed"), "run": str(folder / "run")}
    scale = {"launcher": "ray", "workers": 2, **sections.pop("scale", {})}
    return small_settings(
        model={"name": FAULTS + fault, "options": options}, loop={"log_sample_ids": True}, scale=scale, **sections
    )


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """Agents for all tests of this module: their fork server has imported torch."""
    with agents(2, tmp_path_factory.mktemp("agents")) as started:
        yield started


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Hash of the weights of a run without a failure."""
    folder = tmp_path_factory.mktemp("reference")
    (folder / "failed").touch()
    return run_world(settings("killed", folder), folder / "run").weights_sha256


def settled(group: Group) -> list[int]:
    """The processes of the group, once those of the last test have been replaced."""
    found: list[int] = []
    while found != group.processes:
        found = group.processes
        time.sleep(0.5)
    return found


def fail(group: Group, chosen: TrainingSettings, run: Path) -> WorkersFailedError:
    """Run the first attempt, in which a rank fails; returns the failure."""
    with pytest.raises(WorkersFailedError) as raised:
        group.run(chosen, run)
    return raised.value


def restored(folder: Path) -> list[tuple[int, int | None]]:
    """The steps that were restored, each with the rank whose memory it came from."""
    return [(event.step, event.from_rank) for event in select(read_all(folder / "run"), Restored)]


def test_the_peer_of_a_killed_rank_stays_and_no_step_is_lost(group: Group, tmp_path: Path, uninterrupted: str) -> None:
    chosen = settings("killed", tmp_path)
    before = settled(group)
    failure = fail(group, chosen, tmp_path / "run")
    assert failure.exits == {1: -signal.SIGKILL}
    cause = failures.cause(tmp_path / "run", attempt=0, ended=failure, scale=chosen.scale)
    assert cause.headline == "rank 1 was killed by SIGKILL, in step 13"
    assert eventually(lambda: group.processes[1] != before[1])
    assert group.processes[0] == before[0]
    outcome = group.run(chosen, tmp_path / "run", attempt=1)
    assert restored(tmp_path) == [(STEP - 1, 0)]
    assert outcome.weights_sha256 == uninterrupted
    everything = list(range(1293))
    assert ledger.consumed_ids(tmp_path / "run") == {1: everything, 2: everything}
    # A step whose sums died with the rank is in no window; every other one is there once.
    logged = [step.step for step in steps_of(tmp_path / "run")]
    assert len(set(logged)) == len(logged)


def test_a_survivor_goes_on_alone_from_its_memory(group: Group, tmp_path: Path) -> None:
    chosen = settings("killed", tmp_path)
    fail(group, chosen, tmp_path / "run")
    alone, _ = resized(chosen, 1)
    assert group.run(alone, tmp_path / "run", attempt=1).status == "done"
    assert restored(tmp_path) == [(STEP - 1, 0)]
    everything = list(range(1293))
    assert ledger.consumed_ids(tmp_path / "run") == {1: everything, 2: everything}


def test_what_a_rank_remembers_is_not_restored_in_another_run(group: Group, tmp_path: Path, uninterrupted: str) -> None:
    chosen, other = settings("killed", tmp_path), tmp_path / "other"
    assert fail(group, chosen, tmp_path / "run").exits == {1: -signal.SIGKILL}
    assert group.run(chosen, other / "run").weights_sha256 == uninterrupted
    assert restored(other) == []


def test_without_rank_0_batch_norm_comes_from_a_checkpoint(group: Group, tmp_path: Path, uninterrupted: str) -> None:
    """The other ranks have statistics of their own."""
    chosen = settings("killed", tmp_path, rank=0)
    failure = fail(group, chosen, tmp_path / "run")
    assert failure.exits == {0: -signal.SIGKILL}
    newest = max(committed_steps(tmp_path / "run" / "checkpoints"))
    assert group.run(chosen, tmp_path / "run", attempt=1).weights_sha256 == uninterrupted
    assert restored(tmp_path) == [(newest, None)]


def test_without_rank_0_a_model_without_buffers_goes_on_from_its_peer(group: Group, tmp_path: Path) -> None:
    chosen = small_settings(
        model={"name": "mlp"},
        loop={"epochs": 200},
        scale={"launcher": "ray", "workers": 2},
        checkpoint={"every_steps": 1000},
    )
    run = tmp_path / "run"

    def kill() -> None:
        if eventually(lambda: len(steps_of(run)) > 30):
            os.kill(group.processes[0], signal.SIGKILL)

    def stop() -> None:
        if eventually(lambda: bool(restored(tmp_path))):
            (run / "stop").touch()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(WorkersFailedError):
        group.run(chosen, run)
    killer.join()
    stopper = threading.Thread(target=stop)
    stopper.start()
    outcome = group.run(chosen, run, attempt=1)
    stopper.join()
    ((step, source),) = restored(tmp_path)
    assert source == 1
    assert outcome.step > step > 30


def test_a_rank_that_hangs_is_killed_and_its_peer_goes_on(group: Group, tmp_path: Path, uninterrupted: str) -> None:
    chosen = settings("stuck", tmp_path, scale={"collective_timeout": 3})
    hanging = group.processes[1]
    failure = fail(group, chosen, tmp_path / "run")
    cause = failures.cause(tmp_path / "run", attempt=0, ended=failure, scale=chosen.scale)
    assert cause.headline.startswith("rank 1 did not answer within 3 s")
    assert not psutil.pid_exists(hanging)
    assert group.run(chosen, tmp_path / "run", attempt=1).weights_sha256 == uninterrupted
    assert restored(tmp_path) == [(STEP - 1, 0)]


def test_a_rank_whose_death_is_noticed_after_its_peers_have_failed_is_the_cause(group: Group, tmp_path: Path) -> None:
    chosen = settings("stuck", tmp_path, rank=0, scale={"collective_timeout": 3})
    dying = settled(group)[0]

    def kill() -> None:
        if eventually(lambda: 0 in group.abandoning, seconds=60):
            os.kill(dying, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    assert fail(group, chosen, tmp_path / "run").exits == {0: -signal.SIGKILL}
    killer.join()


def test_a_rank_that_raises_is_replaced_and_its_peer_leaves_the_collective(group: Group, tmp_path: Path) -> None:
    chosen = settings("raising", tmp_path)
    before, began = settled(group), time.monotonic()
    failure = fail(group, chosen, tmp_path / "run")
    assert "rank 1: RuntimeError: raised by the model" in str(failure)
    assert time.monotonic() - began < 60  # and not the 300 s of a collective
    assert failure.exits == {}
    cause = failures.cause(tmp_path / "run", attempt=0, ended=failure, scale=chosen.scale)
    assert cause.headline == "rank 1 failed: RuntimeError: raised by the model"
    assert eventually(lambda: group.processes[1] != before[1])
    assert group.processes[0] == before[0]


def test_ranks_asked_to_stop_commit_one_step_and_the_next_run_has_others(group: Group, tmp_path: Path) -> None:
    """Another run may have other code."""
    chosen = small_settings(loop={"epochs": 200}, scale={"launcher": "ray", "workers": 2})
    run, before = tmp_path / "run", settled(group)

    def ask() -> None:
        if len(steps_of(run)) > 30:
            group.coordinator.ask_to_stop()

    outcome = group.run(chosen, run, check=ask)
    assert outcome.status == "stopped"
    assert outcome.step == max(committed_steps(run / "checkpoints"))
    assert eventually(lambda: not set(before) & set(group.processes))


def test_only_who_knows_the_key_is_an_agent_and_the_ranks_end_with_the_driver(tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    with agents(1, memory) as group:
        (process,) = group.processes
        assert psutil.pid_exists(process)
        with pytest.raises((AuthenticationError, EOFError)):
            Client(group.coordinator.address, authkey=b"guessed")
        # A client that says nothing does not keep others out.
        with socket.create_connection(group.coordinator.address):
            chosen = small_settings(loop={"max_steps": 1}, scale={"launcher": "ray", "workers": 1})
            assert group.run(chosen, tmp_path / "run").status == "done"
        (process,) = settled(group)
    assert eventually(lambda: not psutil.pid_exists(process))
    assert not list(memory.iterdir())
