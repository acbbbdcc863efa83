"""The record of a search in the order of its decisions, and the checkpoints that it keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from observability.event_log import Event
from tests.tune.spaces import reported
from tune.events import (
    SearchLogReader,
    SearchLogWriter,
    SearchStarted,
    TrialAdded,
    TrialEnded,
    TrialExploited,
    TrialReported,
)
from tune.folder import SearchFolder
from tune.history import SearchHistory
from tune.pruning import Pruning
from tune.record import SearchRecord


def report(trial: str, epoch: int, loss: float = 0.5) -> TrialReported:
    return replace(reported(trial, epoch, validation_loss=loss), step=10 * epoch)


class Recorded:
    """A record and what it has shown."""

    def __init__(self, folder: Path, log: SearchLogWriter) -> None:
        self.shown: list[Event] = []
        self.folder = folder
        self.record = SearchRecord(log, SearchHistory(), show=self.shown.append)
        self.record.add(
            SearchStarted(search="s", settings={}, shared={}, objectives={"validation_loss": "min"}),
            TrialAdded(trial="t001", values={}),
            TrialAdded(trial="t002", values={}),
        )

    def logged(self) -> list[Event]:
        """The log, which is what has been shown."""
        events = list(SearchLogReader(self.folder).read_new())
        assert events == self.shown
        return events[3:]


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    with closing(SearchLogWriter(tmp_path)) as log:
        yield Recorded(tmp_path, log)


def test_a_decision_follows_the_evaluation_that_it_is_about(recorded: Recorded) -> None:
    stopped = TrialEnded(trial="t001", status="stopped", message="asha after epoch 1")
    recorded.record.after_report("t001", stopped, epoch=1)
    assert recorded.logged() == []
    recorded.record.report(report("t002", 1))
    first = report("t001", 1)
    recorded.record.report(first)
    assert recorded.logged()[1:] == [first, stopped]
    assert recorded.record.history.trials["t001"].status == "stopped"


def test_a_decision_about_an_earlier_evaluation_is_recorded_at_once(recorded: Recorded) -> None:
    recorded.record.report(report("t001", 1))
    stopped = TrialEnded(trial="t001", status="stopped")
    recorded.record.after_report("t001", stopped, epoch=1)
    assert recorded.logged()[-1] == stopped


def test_an_evaluation_is_recorded_once(recorded: Recorded) -> None:
    for epoch in (1, 2, 1, 2, 3):
        recorded.record.report(report("t001", epoch))
    assert [event.epoch for event in recorded.logged() if isinstance(event, TrialReported)] == [1, 2, 3]


LOSSES = {"t001": 0.4, "t002": 0.1, "t003": 0.3, "t004": 0.2}


@pytest.fixture
def folder(tmp_path: Path) -> SearchFolder:
    search = SearchFolder(tmp_path)
    for trial in (*LOSSES, "t005"):
        for name in ("checkpoints", "donated"):
            (search.trial(trial).path / name / "step-00000010").mkdir(parents=True)
    return search


@pytest.fixture
def history() -> SearchHistory:
    """Four trials that have ended and one that runs."""
    found = SearchHistory()
    found.extend([SearchStarted(search="s", settings={}, shared={}, objectives={"validation_loss": "min"})])
    for trial, loss in LOSSES.items():
        ended = TrialEnded(trial=trial, status="done")
        found.extend([TrialAdded(trial=trial, values={}), report(trial, 1, loss), ended])
    found.extend([TrialAdded(trial="t005", values={})])
    return found


def kept(folder: SearchFolder) -> set[str]:
    return {path.parent.parent.name for path in folder.trials.glob("*/checkpoints/step-*")}


def test_the_best_the_running_and_the_failed_keep_their_checkpoints(
    folder: SearchFolder, history: SearchHistory
) -> None:
    """One that has failed can be resumed by itself; `search.stop.failures` bounds how many there are."""
    Pruning(folder, history, keep=2).prune()
    assert kept(folder) == {"t002", "t004", "t005"}
    assert {path.parent.parent.name for path in folder.trials.glob("*/donated/step-*")} == {"t002", "t004", "t005"}
    assert folder.trial("t001").path.is_dir()
    history.extend([TrialEnded(trial="t005", status="failed", message="it broke")])
    Pruning(folder, history, keep=1).prune()
    assert kept(folder) == {"t002", "t005"}


def test_a_trial_that_is_overtaken_loses_its_checkpoints(folder: SearchFolder, history: SearchHistory) -> None:
    pruning = Pruning(folder, history, keep=1)
    pruning.prune()
    assert kept(folder) == {"t002", "t005"}
    history.extend([report("t005", 1, 0.01), TrialEnded(trial="t005", status="done")])
    pruning.prune()
    assert kept(folder) == {"t005"}


def test_a_trial_that_still_saves_is_left_for_later(folder: SearchFolder, history: SearchHistory) -> None:
    pruning = Pruning(folder, history, keep=0)
    with folder.trial("t001").driving():
        pruning.prune()
        assert kept(folder) == {"t001", "t005"}
    pruning.prune()
    assert kept(folder) == {"t005"}


def test_a_donor_keeps_what_a_clone_has_yet_to_copy(folder: SearchFolder, history: SearchHistory) -> None:
    """The clone may wait for its turn until after the donor's end."""
    pruning = Pruning(folder, history, keep=1)
    history.extend([TrialExploited(trial="t005", donor="t001", epoch=1, step=10, weights_sha256="a" * 64, values={})])
    pruning.prune()
    assert kept(folder) == {"t001", "t002", "t005"}
    history.extend([report("t005", 2, 0.9)])
    pruning.prune()
    assert kept(folder) == {"t002", "t005"}
