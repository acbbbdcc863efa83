"""torchrun on several machines: network namespaces with a shared file system, connected by a bridge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from observability.runlog import Phase, RunEnded, RunStarted, TrainingStarted, read_all, select
from tests.engines.hosts import Host, hosts
from tests.training.launch.driver import end_together, train
from tests.training.launch.ranks import run_world
from tests.training.runs import small_settings
from training.callbacks import sample_ledger as ledger
from training.config.schema import TrainingSettings


@pytest.fixture
def machines() -> Iterator[list[Host]]:
    with hosts(2) as found:
        yield list(found)


def settings(node: int, first: Host) -> TrainingSettings:
    return small_settings(
        loop={"log_sample_ids": True},
        scale={
            "launcher": "torchrun",
            "workers": 2,
            "nodes": 2,
            "node_rank": node,
            "rendezvous": f"{first.address}:29400",
        },
    )


def test_two_machines_train_like_one_with_two_workers(tmp_path: Path, machines: list[Host]) -> None:
    drivers = [
        train(
            settings(node, machines[0]),
            tmp_path,
            prefix=host.prefix,
        )
        for node, host in enumerate(machines)
    ]
    with drivers[0], drivers[1]:
        end_together(drivers)
    run = drivers[0].run
    reference = run_world(small_settings(scale={"launcher": "torchrun", "workers": 2}), tmp_path / "reference")
    events = read_all(run)
    assert [end.weights_sha256 for end in select(events, RunEnded)] == [reference.weights_sha256]
    assert ledger.consumed_ids(run) == {1: list(range(1293)), 2: list(range(1293))}
    assert (len(select(events, RunStarted)), select(events, TrainingStarted)[0].world) == (1, 2)
    assert [phase.name for phase in select(events, Phase)].count("workers_start") == 1
