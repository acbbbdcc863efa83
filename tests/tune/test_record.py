"""The record of a search: the log, the state, and the order of what Ray Tune says in another order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from observability.event_log import Event
from tune.events import SearchLogReader, SearchLogWriter, SearchStarted, TrialAdded, TrialEnded, TrialReported
from tune.history import SearchHistory
from tune.record import SearchRecord


def report(trial: str, epoch: int) -> TrialReported:
    return TrialReported(
        trial=trial, epoch=epoch, step=10 * epoch, metrics={"validation_loss": 1 / epoch}, worker_seconds=epoch
    )


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
