"""The table of a search, the lines in a pipe, and the live table of a terminal."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from observability.event_log import Event
from platform_charts.jobs.progress import read_progress_line
from tests.tune.sample_search import PBT, PBT_SPACE, SPACE, START, SampleSearch, history_of
from tune.estimate import time_left
from tune.events import SearchEnded, SearchNotice, SearchStarted, TrialAdded, TrialEnded, TrialReported
from tune.history import SearchHistory
from tune.table import Line, print_status, table_lines
from tune.texts import MetricTexts, short_names
from tune.view import SearchView

FAILING = {"t004": "worker 1 ran out of memory\nTraceback …"}
LONG_SPACE = {
    **SPACE,
    **{f"model.options.a_setting_with_a_rather_long_name_{index}": {"uniform": [0.0, 1.0]} for index in range(9)},
}


def plain(events: Sequence[Event], directory: Path | None = None, history: SearchHistory | None = None) -> str:
    """The output in a pipe."""
    stream = io.StringIO()
    view = SearchView(stream, is_terminal=False, directory=directory, history=history)
    for event in events:
        view.handle(event)
        view.tick()
    view.close()
    return stream.getvalue()


def table(search: SampleSearch, *, is_running: bool, width: int = 120, rows: int = 20) -> list[str]:
    """The lines of the table when the newest event has just happened."""
    history = search.history
    lines = table_lines(
        history, MetricTexts(None), is_running=is_running, now=history.last_time, width=width, rows=rows
    )
    return [text for text, _ in lines]


def visible(text: str) -> str:
    """The text without escape sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_a_pipe_gets_a_line_per_event_that_matters(tmp_path: Path) -> None:
    search = SampleSearch(trials=6, epochs=9, failing=FAILING)
    lines = plain(search.events, search.write(tmp_path)).splitlines()
    assert lines[0] == "[   0.0 s] search digits-asha: 6 trials of 5 axes, max validation_accuracy, optuna, asha"
    assert lines[1] == "trial 0/6  0 running"
    assert re.match(r"\[   0\.0 s\] t001 added: learning_rate=0\.\d+, weight_decay=", lines[2])
    assert sum(" added: " in line for line in lines) == 6
    assert any(re.search(r"new best: validation accuracy \d\d\.\d % of t00\d after epoch \d$", line) for line in lines)
    assert any(re.search(r"t004 failed after 2 of 9 epochs, .*: worker 1 ran out of memory$", line) for line in lines)
    assert any(
        re.search(r"t00\d stopped after \d of 9 epochs, best validation accuracy .* of worker time: not among", line)
        for line in lines
    )
    assert re.search(
        r"search digits-asha done after .*: all trials have ended, best t00\d; 6 of 6 trials ended", lines[-1]
    )


def test_a_pipe_gets_the_lines_that_the_table_of_jobs_reads(tmp_path: Path) -> None:
    search = SampleSearch(trials=6, epochs=9, failing=FAILING)
    found = [
        one for line in plain(search.events, search.write(tmp_path)).splitlines() if (one := read_progress_line(line))
    ]
    ended = [one.done for one in found]
    assert ended == sorted(ended)
    assert (ended[0], {one.total for one in found}, {one.unit for one in found}) == (0, {6}, {"trial"})
    assert str(found[0]) == "0/6 trials, 0 running"
    last = found[-1]
    assert re.fullmatch(
        r"\d/6 trials, \d running, 1 failed, best validation accuracy \d\d\.\d % \(t00\d, epoch \d\)", str(last)
    )
    assert re.fullmatch(r"at most \d+:\d\d", last.left)


def test_progress_is_written_at_most_every_ten_seconds_and_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    started, first, *_ = SampleSearch(trials=2, until=0).events
    now = [1000.0]
    monkeypatch.setattr("tune.view.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    view = SearchView(stream, is_terminal=False)

    def lines() -> list[str]:
        return [line for line in stream.getvalue().splitlines() if read_progress_line(line)]

    view.handle(started)
    view.handle(first)
    assert lines() == ["trial 0/2  0 running"]
    now[0] += 9.9
    view.tick()
    assert len(lines()) == 1
    now[0] += 0.1
    view.tick()
    assert lines() == ["trial 0/2  0 running", "trial 0/2  1 running"]
    now[0] += 60
    view.tick()
    assert len(lines()) == 2


def test_an_evaluation_that_is_no_new_best_gets_no_line() -> None:
    search = SampleSearch(trials=6, epochs=9)
    evaluations = sum(isinstance(event, TrialReported) for event in search.events)
    lines = plain(search.events).splitlines()
    values = [
        float(match[1]) for line in lines if (match := re.search(r"new best: validation accuracy ([\d.]+)", line))
    ]
    assert 2 <= len(values) < evaluations
    assert values == sorted(set(values))


def test_an_exploitation_says_what_changed() -> None:
    text = plain(SampleSearch(trials=8, epochs=12, scheduler=PBT, space=PBT_SPACE).events)
    assert re.search(r"t00\d continues from t00\d after epoch \d+: learning_rate=[\de.-]+ \(was [\de.-]+\)", text)


def test_what_an_earlier_driver_logged_is_not_shown_again() -> None:
    search = SampleSearch(trials=6, epochs=9, until=20)
    started = replace(search.events[0], time=START + 500)
    shown = plain([started], history=search.history)
    assert shown.startswith("[   0.0 s] search digits-asha")
    assert re.fullmatch(r".*\ntrial \d/6  \d running  best validation accuracy .*\n", shown)


def test_the_value_of_a_trial_that_failed_is_no_longer_the_best() -> None:
    started = SampleSearch(trials=2, until=0).events[0]
    added = [TrialAdded(time=START, trial=trial, values={}) for trial in ("t001", "t002")]

    def report(trial: str, accuracy: float) -> TrialReported:
        metrics = {"validation_accuracy": accuracy}
        return TrialReported(time=START, trial=trial, epoch=1, step=1, metrics=metrics, worker_seconds=1)

    failed = TrialEnded(time=START, trial="t001", status="failed", message="killed")
    text = plain([started, *added, report("t001", 0.9), failed, report("t002", 0.5)])
    assert "new best: validation accuracy 0.5000 of t002" in text


def test_a_lower_loss_is_a_new_best() -> None:
    search = SampleSearch(trials=4, epochs=3, objectives={"validation_loss": "min"})
    values = [float(value) for value in re.findall(r"new best: validation loss ([\d.]+)", plain(search.events))]
    assert len(values) >= 2
    assert values == sorted(values, reverse=True)


def test_the_table_of_a_running_search() -> None:
    lines = table(SampleSearch(trials=16, until=90), is_running=True)
    assert re.match(r"search digits-asha: running, \d+:\d\d  \d+ of 16 trials ended \(.*\), 4 running$", lines[0])
    assert re.search(
        r"best validation accuracy 0\.\d{4} \(t0\d\d, epoch \d+\)  .* of worker time  at most [\d:]+ left$", lines[1]
    )
    assert lines[3].split()[:3] == ["trial", "status", "epoch"]
    rows = lines[4:]
    assert [row.split()[1] for row in rows[:4]] == ["running"] * 4
    assert 1 <= len(rows) - 4 <= 5
    best = [float(row.split()[4]) for row in rows[4:]]
    assert best == sorted(best, reverse=True)


def test_a_narrow_terminal_shows_a_setting_rather_than_the_worker_time() -> None:
    wide, narrow = (table(SampleSearch(trials=16, until=90), is_running=True, width=width) for width in (200, 80))
    assert wide[3].endswith("  worker time")
    assert "learning_rate" in narrow[3]


def test_a_trial_without_a_result_has_no_values_yet() -> None:
    history = history_of(*SampleSearch(trials=2, until=0).events[:2])
    lines = table_lines(history, MetricTexts(None), is_running=True, now=START, width=200, rows=9)
    assert lines[-1][0].split()[:3] == ["t001", "running", "0/27"]
    assert not {"none", "ms"} & set(lines[-1][0].split())


def test_the_trials_of_a_killed_search_are_interrupted() -> None:
    lines = table(SampleSearch(trials=16, until=90), is_running=False)
    assert "search digits-asha: killed" in lines[0]
    assert ", 4 interrupted" in lines[0]
    assert "left" not in lines[1]


def test_a_finished_search_shows_its_best_trials_and_cost() -> None:
    search = SampleSearch(trials=8, stop={"dollars_per_worker_hour": 36.0})
    lines = table(search, is_running=False)
    assert "search digits-asha: done" in lines[0]
    assert f"${search.history.worker_seconds / 100:,.2f}" in lines[1]
    assert lines[4].split()[0] == search.history.ranked()[0].id


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = table(SampleSearch(trials=16, space=LONG_SPACE, until=60), is_running=True, width=width)
    assert max(map(len, lines)) <= width
    assert any(line.rstrip().endswith("…") for line in lines)


@pytest.mark.parametrize("width", range(90, 150, 3))
def test_columns_are_left_out_as_a_whole(width: int) -> None:
    search = SampleSearch(trials=16, until=60)
    [heading] = [line for line in table(search, is_running=True, width=width) if line.startswith("trial")]
    names = {"trial", "status", "epoch", "validation accuracy", "best", "worker time", "…"}
    names |= set(short_names(search.history.space.axes).values())
    assert set(re.split(r" {2,}", heading)) <= names


def test_a_low_terminal_shows_fewer_trials() -> None:
    assert len(table(SampleSearch(trials=16, until=60), is_running=True, rows=3)) == 3 + 4


def test_a_search_without_a_trial_has_a_table() -> None:
    assert table(SampleSearch(until=0, trials=1), is_running=True)[1] == "no result yet"
    empty = table_lines(SearchHistory(), MetricTexts(None), is_running=False, now=START, width=80, rows=9)
    assert empty == [("no search yet: its log has no start", "plain")]


def test_the_status_of_a_folder_is_printed(tmp_path: Path) -> None:
    stream = io.StringIO()
    print_status(SampleSearch(trials=5).write(tmp_path), stream, is_running=False)
    assert "5 of 5 trials ended" in stream.getvalue()
    assert re.search(r"best validation accuracy \d\d\.\d %", stream.getvalue()), "as the trials' objective describes it"


def test_several_objectives_have_columns() -> None:
    objectives = {"validation_accuracy": "max", "parameters": "min"}
    search = SampleSearch(trials=5, epochs=3, scheduler={"name": "none"}, objectives=objectives)
    heading = table(search, is_running=False)[3]
    assert re.search(r"validation accuracy +best +parameters +best +learning_rate", heading)


def test_the_time_left_is_that_of_the_epochs_to_come() -> None:
    started = SampleSearch(trials=2, epochs=10, scheduler={"name": "none"}, until=0).events[0]
    added = [TrialAdded(time=START, trial=f"t00{index}", values={}) for index in (1, 2)]
    reports = [
        TrialReported(time=START + 5 * epoch, trial="t001", epoch=epoch, step=epoch, metrics={}, worker_seconds=0)
        for epoch in range(1, 5)
    ]
    # 4 epochs took 20 s; 6 and 10 epochs are open.
    assert str(time_left(history_of(started, *added, *reports), now=START + 20)) == "about 1:20 left"
    assert time_left(history_of(started, *added, *reports[:1]), now=START + 5) is None


def test_epochs_of_an_earlier_driver_say_nothing_about_the_time_left() -> None:
    started = SampleSearch(trials=1, epochs=10, scheduler={"name": "none"}, until=0).events[0]
    reports = [
        TrialReported(time=time, trial="t001", epoch=epoch, step=epoch, metrics={}, worker_seconds=0)
        for epoch, time in enumerate([START + 1, START + 2, START + 3, START + 110, START + 120, START + 130], start=1)
    ]
    added = TrialAdded(time=START, trial="t001", values={})
    events = [started, added, *reports[:3], replace(started, time=START + 100), *reports[3:]]
    assert str(time_left(history_of(*events), now=START + 130)) == "about 0:40 left"


def test_the_start_of_a_driver_is_no_training() -> None:
    started = SampleSearch(trials=1, epochs=10, scheduler={"name": "none"}, until=0).events[0]
    added = TrialAdded(time=START + 60, trial="t001", values={})
    reports = [
        TrialReported(time=START + 90 + epoch, trial="t001", epoch=epoch, step=epoch, metrics={}, worker_seconds=0)
        for epoch in (1, 2, 3)
    ]
    assert str(time_left(history_of(started, added, *reports), now=START + 93)) == "about 0:07 left"


def test_the_time_left_is_a_limit_where_a_search_may_end_early() -> None:
    search = SampleSearch(trials=4, scheduler={"name": "none"}, stop={"target": 0.9}, until=20)
    assert str(time_left(search.history, now=search.history.last_time)).startswith("at most ")


def test_a_grid_has_as_many_trials_as_combinations() -> None:
    space = {"optimizer.name": {"choice": ["sgd", "adamw"]}, "optimizer.learning_rate": {"choice": [0.1, 0.01, 0.001]}}
    search = SampleSearch(trials=16, algorithm="grid", space=space, until=0)
    assert search.history.planned == 6


def test_names_are_as_short_as_they_stay_unique() -> None:
    keys = ["optimizer.name", "schedule.name", "optimizer.learning_rate", "name"]
    assert short_names(keys) == {
        "optimizer.name": "optimizer.name",
        "schedule.name": "schedule.name",
        "optimizer.learning_rate": "learning_rate",
        "name": "name",
    }


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal of 110 columns and 30 rows that records its output."""
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("LINES", "30")
    monkeypatch.setattr("tune.view._REFRESH_SECONDS", 0.0)
    return io.StringIO()


def test_a_terminal_redraws_the_table_and_keeps_notices(terminal: io.StringIO) -> None:
    view = SearchView(terminal, is_terminal=True)
    for event in SampleSearch(trials=8, epochs=9, failing=FAILING).events:
        view.handle(event)
        view.tick()
    view.handle(SearchNotice(level="warning", message="MLflow does not answer"))
    view.close()
    text = visible(terminal.getvalue())
    assert text.count("warning: MLflow does not answer") == 1
    assert " added: " not in text
    last = text[text.rindex("search digits-asha: done") :].splitlines()
    assert "8 of 8 trials ended" in last[0]
    assert last[3].startswith("trial  status")
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l"), "the cursor is visible"


def test_a_terminal_shows_that_a_search_runs_before_its_first_trial(terminal: io.StringIO) -> None:
    """Ray takes seconds to start."""
    view = SearchView(terminal, is_terminal=True)
    view.handle(SampleSearch(trials=4).events[0])
    view.tick()
    assert "0 of 4 trials ended" in visible(terminal.getvalue())
    view.close()


def test_an_event_waits_until_the_table_is_drawn(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    view = SearchView(terminal, is_terminal=True)
    *events, last = SampleSearch(trials=4, epochs=3).events
    for event in events:
        view.handle(event)
    other = threading.Thread(target=view.handle, args=[last])
    handled_while_drawing: list[bool] = []

    def lines(*arguments: Any, **options: Any) -> list[Line]:  # noqa: ANN401 - those of table_lines
        other.start()
        other.join(0.2)  # it would end in a millisecond
        handled_while_drawing.append(not other.is_alive())
        return table_lines(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr("tune.view.table_lines", lines)
        view.tick()
    other.join()
    view.close()
    assert handled_while_drawing == [False]
    assert "search digits-asha: done" in visible(terminal.getvalue())


def test_a_table_fits_on_the_terminal(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "12")
    view = SearchView(terminal, is_terminal=True)
    for event in SampleSearch(trials=40, concurrency=30, until=60).events:
        view.handle(event)
    view.tick()
    assert terminal.getvalue().count("\n") <= 12


def test_the_view_imports_nothing_heavy() -> None:
    program = (
        "import sys, tune.view; assert not {'rich', 'numpy', 'matplotlib', 'ray', 'torch', 'optuna'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_events_of_an_unknown_trial_are_shown_without_an_error() -> None:
    started = SearchStarted(search="a", settings={}, shared={}, objectives={"validation_loss": "min"})
    report = TrialReported(trial="t009", epoch=1, step=1, metrics={"validation_loss": 1.0}, worker_seconds=1)
    ended = SearchEnded(status="failed", reason="3 trials failed")
    assert "search a failed" in plain([started, report, ended])


def test_each_trial_is_shown_and_estimated_with_its_own_number_of_epochs() -> None:
    settings = {"trials": 2, "space": {"loop.epochs": {"choice": [4, 8]}}}
    history = history_of(
        SearchStarted(
            time=0.0,
            search="s",
            settings=settings,
            shared={"loop": {"epochs": 10}},
            objectives={"validation_loss": "min"},
        ),
        *(
            TrialAdded(time=0.0, trial=trial, values={"loop.epochs": epochs})
            for trial, epochs in (("t001", 4), ("t002", 8))
        ),
        *(
            TrialReported(
                time=float(epoch),
                trial="t001",
                epoch=epoch,
                step=epoch,
                metrics={"validation_loss": 1.0},
                worker_seconds=1.0,
            )
            for epoch in (1, 2, 3)
        ),
    )
    lines = table_lines(history, MetricTexts(None), is_running=True, now=3.0, width=120, rows=9)
    assert [re.search(r"\d/\d+", text)[0] for text, _ in lines if text.startswith("t0")] == ["3/4", "0/8"]  # type: ignore[index]
    assert str(time_left(history, now=3.0)) == "about 0:09 left", "1 and 8 epochs of a second each"
