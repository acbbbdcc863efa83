"""Lets a cell happen, and proves what the run owes afterwards."""

from __future__ import annotations

from observability.runlog import RunEnded, WorkersFailed, read_all, select
from tests.engines.ray_cluster import short_folder
from tests.faults.cell import Cell
from tests.faults.proof import Cost, prove
from tests.faults.run import FaultedRun
from tests.training.launch.ranks import run_world
from training.config.schema import TrainingSettings

_references: dict[str, str] = {}


def run_cell(cell: Cell) -> Cost:
    """Run a cell on machines of its own.

    Raises:
        AssertionError: the run does not end as if the fault had not happened.
    """
    with short_folder() as files:
        weights = uninterrupted((cell.reference or cell.settings)(files))
    with short_folder() as files, cell.run_on(cell.settings(files)) as run:
        run.start()
        fault = cell.inject(run)
        if cell.status < 0:
            assert run.driver.process.wait() == cell.status
        else:
            ended = run.end()
            assert ended.status == cell.status, ended.err
            assert "Traceback (most recent call last)" not in ended.err or cell.fault.cause == "code"
        _assert_cause(cell, run)
        if cell.status:
            cell.repair(run)
            run.start()
            ended = run.end()
            assert ended.status == 0, ended.err
        cell.check(run)
        cost = prove(run, weights_sha256=weights, fault=fault)
    assert cell.most_lost is None or cost.lost_steps <= cell.most_lost, f"{cost.lost_steps} steps were lost"
    return cost


def uninterrupted(settings: TrainingSettings) -> str:
    """The hash of the weights in which a run ends without faults; runs that need the same one share it."""
    key = settings.model_dump_json()
    if key not in _references:
        with short_folder() as folder:
            _references[key] = run_world(settings, folder / "run").weights_sha256
    return _references[key]


def _assert_cause(cell: Cell, run: FaultedRun) -> None:
    events = read_all(run.folder)
    failed = select(events, WorkersFailed)
    expected = {cell.fault.cause} if cell.fault.cause else set()
    assert {one.cause for one in failed} == expected, [f"{one.cause}: {one.reason}" for one in failed]
    ends = select(events, RunEnded)
    assert bool(ends) == (cell.status >= 0)
