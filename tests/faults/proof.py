"""Lets a cell happen, proves what every faulted run owes, and measures what its faults cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from observability.goodput import GoodputLedger
from observability.runlog import Event, Notice, RunEnded, Step, TrainingStarted, WorkersFailed, read_all, select
from observability.steady_clock import SteadyClock
from tests.engines.ray_cluster import short_folder
from tests.faults.cell import Cell
from tests.faults.run import FaultedRun
from tests.training.launch.ranks import run_world
from training.callbacks import sample_ledger
from training.config.schema import TrainingSettings

TOLERANCE = 0.01
"""Share of the wall time by which the sum of the goodput's classes may differ from it."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a fault cost.

    Attributes:
        detection: seconds from the fault to the first word of it in the log; None if nobody was left to write it.
        next_step: seconds from the fault to the end of the next step.
        lost_steps: steps that were done and trained again.
        wall: seconds of the run.
    """

    detection: float | None
    next_step: float
    lost_steps: int
    wall: float


def prove(run: FaultedRun, *, weights_sha256: str, fault: float) -> Cost:
    """Assert what holds for every run that is over, and measure what its faults cost."""
    events = list(map(SteadyClock().steady, read_all(run.folder)))
    ended = select(events, RunEnded)[-1]
    assert ended.status == "done", ended.message
    assert ended.weights_sha256 == weights_sha256, "the weights differ from those of the uninterrupted run"
    assert_every_sample_once(run.folder, events)
    wall = _wall(run, ended)
    classes = GoodputLedger.of_run(run.folder).seconds
    seconds = sum(classes.values())
    assert min(classes.values()) >= 0, classes
    assert abs(seconds - wall) <= TOLERANCE * wall, f"classes add up to {seconds} s of {wall} s"
    left = run.left_behind()
    assert not left, f"left behind: {left}"
    return Cost(
        detection=_detection(events, fault),
        next_step=_next_step(events, fault),
        lost_steps=lost_steps(run.folder),
        wall=wall,
    )


def lost_steps(folder: Path) -> int:
    """Steps that were taken again, of the rank that lost most; without the one that a fault interrupted."""
    files = (folder / sample_ledger.FOLDER).glob("rank-*.jsonl")
    return max(_lost_of(path.read_text(encoding="utf-8").splitlines()) for path in files)


def _lost_of(lines: Sequence[str]) -> int:
    """Of a rank's lines, each of which begins a step, or an attempt and says how many steps are done."""
    lost = newest = 0
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:  # torn by the death of its writer
            continue
        if "start" in entry:
            lost += max(0, newest - 1 - entry["start"])
        else:
            newest = entry["step"]
    return lost


def _wall(run: FaultedRun, ended: RunEnded) -> float:
    """Seconds to the last event of a run: its driver may deliver the run to MLflow after that."""
    assert run.began is not None
    assert ended.uptime is not None
    return ended.uptime - run.began


def assert_every_sample_once(folder: Path, events: Sequence[Event]) -> None:
    """Assert that in each epoch the committed steps of a run read every sample once, whatever the number of ranks was."""
    started = select(events, TrainingStarted)[-1]
    epochs = started.total_steps // started.steps_per_epoch
    everything = list(range(started.train_samples))
    consumed = sample_ledger.consumed_ids(folder)
    assert list(consumed) == list(range(1, epochs + 1))
    assert all(ids == everything for ids in consumed.values()), "samples were lost or repeated"


def _detection(events: Sequence[Event], fault: float) -> float | None:
    """The first failure or warning after the fault; none before the run was started again."""
    for event in events:
        if event.time < fault:
            continue
        if isinstance(event, WorkersFailed | Notice) or (isinstance(event, RunEnded) and event.status == "failed"):
            return event.time - fault
        if isinstance(event, TrainingStarted | RunEnded):
            return None
    return None


def _next_step(events: Sequence[Event], fault: float) -> float:
    """The first step after the first start of the ranks after the fault, or after the fault if they just went on."""
    began = min((one.time for one in select(events, TrainingStarted) if one.time > fault), default=fault)
    return min(one.time for one in select(events, Step) if one.time > began) - fault


_references: dict[str, str] = {}


def run_cell(cell: Cell) -> Cost:
    """Run a cell on machines of its own."""
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
