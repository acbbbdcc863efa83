"""torchrun over several machines: network namespaces that share a file system and see each other by one wire."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from observability.runlog import Phase, RunEnded, RunStarted, TrainingStarted, read_all, select
from tests.engines import report_table
from tests.training.launch.driver import train
from tests.training.launch.ranks import run_world
from tests.training.runs import small_settings
from training import ledger
from training.config.schema import TrainingSettings

MACHINES = "machines (network namespaces)"
WIRE = "wire0"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@pytest.fixture
def machines() -> Iterator[list[str]]:
    """Two namespaces, 10.77.0.1 and 10.77.0.2, joined by a pair of virtual Ethernet devices."""
    if shutil.which("ip") is None:
        report_table.skipped(MACHINES, "there is no program `ip`", "apt-get install iproute2")
    names = [f"rtp-{os.getpid()}-{number}" for number in range(2)]
    try:
        for name in names:
            ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        report_table.skipped(MACHINES, error.stderr.strip(), "run the tests as root, or with CAP_NET_ADMIN")
    try:
        ip("link", "add", WIRE, "netns", names[0], "type", "veth", "peer", "name", WIRE, "netns", names[1])
        for number, name in enumerate(names, start=1):
            ip("-n", name, "address", "add", f"10.77.0.{number}/24", "dev", WIRE)
            ip("-n", name, "link", "set", WIRE, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            ip("netns", "delete", name)


def settings(node: int) -> TrainingSettings:
    return small_settings(
        loop={"log_sample_ids": True},
        scale={
            "launcher": "torchrun",
            "workers": 2,
            "nodes": 2,
            "node_rank": node,
            "rendezvous": "10.77.0.1:29400",
        },
    )


def test_two_machines_train_what_one_trains_with_two_workers(tmp_path: Path, machines: list[str]) -> None:
    drivers = [
        train(
            settings(node),
            tmp_path,
            prefix=["ip", "netns", "exec", name],
            # The name of this host leads to an address that neither namespace has.
            environment={"GLOO_SOCKET_IFNAME": WIRE},
        )
        for node, name in enumerate(machines)
    ]
    with drivers[0], drivers[1]:
        for driver in drivers:
            ended = driver.end()
            assert ended.status == 0, ended.err
    report_table.ran(MACHINES)
    run = drivers[0].run
    reference = run_world(small_settings(scale={"launcher": "torchrun", "workers": 2}), tmp_path / "reference")
    events = read_all(run)
    assert [end.weights_sha256 for end in select(events, RunEnded)] == [reference.weights_sha256]
    assert ledger.consumed_ids(run) == {1: list(range(1293)), 2: list(range(1293))}
    assert (len(select(events, RunStarted)), select(events, TrainingStarted)[0].world) == (1, 2)
    assert [phase.name for phase in select(events, Phase)].count("workers_start") == 1
