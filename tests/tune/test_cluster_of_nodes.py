"""A search on a Ray cluster of several nodes, as in a RayJob: the driver on the head, which has no CPUs, the ranks on the workers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from observability.event_log import Event
from observability.runlog import CheckpointCommitted, Restored, RunStarted, Step, read_all, select
from platform_charts.jobs.drain import drain_head
from tests.distribution import RAY_NODES
from tests.engines.ray_cluster import short_folder
from tests.engines.ray_raylets import Raylet, raylets
from tests.training.launch.driver import PATIENCE
from tests.tune.search_driver import SearchDriver, assert_counted_once, drivers, search_of
from training.driver_lock import DriverLock
from training.errors import ExitStatus
from tune.events import TrialAdded, TrialReported

pytestmark = pytest.mark.xdist_group(RAY_NODES)

FREQUENT = {"checkpoint": {"every_steps": 5}}


class Nodes(NamedTuple):
    """A cluster with four workers of one CPU, on the address of this machine."""

    address: str
    workers: list[Raylet]
    folder: Path


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with pytest.MonkeyPatch.context() as patched, short_folder() as folder:
        if os.environ.get("RAY_AUTH_MODE", "token") == "token":
            patched.setenv("RAY_AUTH_MODE", "token")
            patched.setenv("RAY_AUTH_TOKEN", os.environ.get("RAY_AUTH_TOKEN", "a" * 64))
        with raylets(4, folder) as (address, workers):
            yield Nodes(address, workers, folder)


def search_on(address: str, root: Path, *, trials: int, epochs: int) -> SearchDriver:
    """A driver of a search on a cluster, with two trials of two workers at the same time."""
    shared = {"scale": {"workers": 2, "address": address}, **FREQUENT}
    settings = search_of(epochs=epochs, shared=shared, algorithm="random", trials=trials, concurrency=2)
    return SearchDriver(root, settings)


def trials_of(driver: SearchDriver) -> set[str]:
    """The trials that the search has added."""
    return {event.trial for event in driver.read_log(offset=0).read_new() if isinstance(event, TrialAdded)}


@pytest.mark.extended
def test_a_search_whose_head_is_drained_saves_its_trials_and_the_next_driver_goes_on(
    nodes: Nodes, tmp_path: Path
) -> None:
    """By the head's own preStop hook, which ends when the driver has."""
    with search_on(nodes.address, tmp_path, trials=2, epochs=30) as driver:
        assert driver.wait_for(lambda event: isinstance(event, TrialReported))
        hook = drain_head(str(driver.run), grace_seconds=round(PATIENCE))
        assert hook is not None
        subprocess.run(["/bin/bash", "-c", hook], check=True, timeout=PATIENCE)
        assert not DriverLock(driver.run).is_held()
        ended = driver.end()
    assert ended.status == ExitStatus.INTERRUPTED, ended.out + ended.err
    running = trials_of(driver)
    assert all(select(read_all(driver.run / "trials" / trial), CheckpointCommitted) for trial in running)
    with search_on(nodes.address, tmp_path, trials=2, epochs=30) as again:
        ended = again.end()
    assert ended.status == ExitStatus.DONE, ended.out + ended.err
    assert_counted_once(again.run, trials=2)
    assert drivers(again.run) == 2
    assert {len(select(read_all(again.run / "trials" / trial), RunStarted)) for trial in running} == {2}


@pytest.mark.extended
def test_a_trial_that_loses_a_node_goes_on_from_its_checkpoint_when_another_one_joins(
    nodes: Nodes, tmp_path: Path
) -> None:
    trained = set[str]()

    def have_both_trained(event: Event) -> bool:
        if isinstance(event, TrialReported) and event.epoch > 1:
            trained.add(event.trial)
        return len(trained) == 2

    with search_on(nodes.address, tmp_path, trials=2, epochs=60) as driver:
        assert driver.wait_for(have_both_trained)
        nodes.workers[0].lose()
        spare = Raylet(nodes.folder, cluster=nodes.address)
        try:
            ended = driver.end()
        finally:
            spare.stop()
    assert ended.status == ExitStatus.DONE, ended.out + ended.err
    assert_counted_once(driver.run, trials=2)
    logs = {trial: read_all(driver.run / "trials" / trial) for trial in trials_of(driver)}
    (resumed,) = [events for events in logs.values() if select(events, Restored)]
    assert select(resumed, Restored)[0].step > 0
    assert len({event.step for event in select(resumed, Step)}) == select(resumed, Step)[-1].step
