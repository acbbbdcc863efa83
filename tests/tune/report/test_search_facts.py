"""The tables of a search's report."""

from __future__ import annotations

import re
from pathlib import Path

from tests.tune.report.test_data import data_of
from tests.tune.sample_search import PBT, PBT_SPACE, SampleSearch
from tune.report.facts import axis_text, best_rows, search_rows, trial_headings, trial_rows
from tune.report.schedule_plots import survival
from tune.space.axes import Axis, Choice, Condition, Constant, Continuous, Integers

TRACE = "worker 1 ran out of memory\n  File 'forward.py', line 12"


def test_every_trial_has_a_row_the_best_first() -> None:
    search = SampleSearch(trials=16, failing={"t004": TRACE})
    rows = trial_rows(data_of(search))
    ranked = [trial.id for trial in search.history.ranked()]
    assert [row.cells[0] for row in rows][: len(ranked)] == ranked
    assert sorted(row.cells[0] for row in rows) == sorted(search.history.trials)
    assert {len(row.cells) for row in rows} == {len(trial_headings(data_of(search)))}
    [failed] = [row for row in rows if row.status == "failed"]
    assert failed.message.text == "worker 1 ran out of memory"
    assert failed.message.details == TRACE


def test_what_stopping_saved_is_told_of_the_trials_that_have_ended() -> None:
    for until, is_running in ((None, False), (40, True)):
        search = SampleSearch(trials=16, until=until)
        ended = [trial for trial in search.history.trials.values() if trial.ended]
        trained, whole = sum(trial.epoch for trial in ended), len(ended) * 27
        plot = survival(data_of(search, is_running=is_running))
        assert plot is not None
        assert f"{trained} of {whole} were trained: {1 - trained / whole:.1%}".replace("%", " %") in plot.note


def test_the_schedule_of_the_best_trial_is_listed() -> None:
    data = data_of(SampleSearch(trials=8, epochs=20, scheduler=PBT, space=PBT_SPACE))
    assert data.best is not None
    text = dict(best_rows(data))["optimizer.learning_rate"]
    assert re.match(r"[\d.]+ from epoch 1, [\d.]+ from epoch \d+", text)
    assert len(text.split(", ")) == len(data.best.schedule)
    fixed = data_of(SampleSearch(trials=4, epochs=3))
    assert fixed.best is not None
    assert dict(best_rows(fixed))["optimizer.learning_rate"] == repr(fixed.best.values["optimizer.learning_rate"])


def test_a_continued_search_says_how_often() -> None:
    search = SampleSearch(trials=4, until=5)
    search.events.append(search.events[0])
    assert dict(search_rows(data_of(search), Path("x")))["continued"].startswith("1 time, the last at 2026-")


def test_an_axis_is_described() -> None:
    cases: list[tuple[Axis, str]] = [
        (Constant("one_cycle"), "always one_cycle"),
        (Choice((None, 0.5, True)), "one of none, 0.5, true"),
        (Integers(1, 64, is_log=True), "1 to 64, logarithmic, whole numbers"),
        (Integers(8, 64, step=8), "8 to 64, in steps of 8, whole numbers"),
        (Continuous(0, 0.1), "0 to 0.1"),
        (Continuous(1e-4, 0.1, is_log=True), "0.0001 to 0.1, logarithmic"),
        (Continuous(0, 1, when=(Condition("a", ("x", "y")),)), "0 to 1; if a is x or y"),
    ]
    assert [axis_text(axis) for axis, _ in cases] == [text for _, text in cases]
