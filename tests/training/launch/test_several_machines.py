"""torchrun on several machines: network namespaces with a shared file system, connected by a bridge, and with code of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from observability.runlog import Phase, RunEnded, RunStarted, TrainingStarted, read_all, select
from tests.engines.hosts import Host, hosts
from tests.training.code.projects import OWN, settings, uninterrupted, write
from tests.training.launch.driver import Driver, arguments_for, end_together
from training.callbacks import sample_ledger as ledger
from training.config.schema import TrainingSettings


@pytest.fixture
def machines() -> Iterator[list[Host]]:
    with hosts(2) as found:
        yield list(found)


def chosen(**scale: Any) -> TrainingSettings:  # noqa: ANN401 - settings
    return settings(loop={"log_sample_ids": True}, scale={"launcher": "torchrun", "workers": 2, **scale})


def test_two_machines_train_like_two_workers_of_one_and_share_its_code(tmp_path: Path, machines: list[Host]) -> None:
    code, run = write(tmp_path / "mine", OWN), tmp_path / "runs" / "run"
    drivers = []
    for node, host in enumerate(machines):
        arguments = arguments_for(chosen(nodes=2, node_rank=node, rendezvous=f"{machines[0].address}:29400"), tmp_path)
        drivers.append(Driver(*arguments, "--code", str(code), run=run, prefix=host.prefix))
    with drivers[0], drivers[1]:
        end_together(drivers)
    events = read_all(run)
    assert [end.weights_sha256 for end in select(events, RunEnded)] == [uninterrupted(chosen(), tmp_path / "reference")]
    assert ledger.consumed_ids(run) == {epoch: list(range(320)) for epoch in range(1, 7)}
    assert (len(select(events, RunStarted)), select(events, TrainingStarted)[0].world) == (1, 2)
    assert [phase.name for phase in select(events, Phase)].count("workers_start") == 1
