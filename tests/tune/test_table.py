"""The table of a search, the lines in a pipe, and the live table of a terminal."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from observability.event_log import Event
from platform_charts.jobs.progress import read_progress_line
from tests.observability.test_progress import visible
from tests.tune.sample_search import PBT, PBT_SPACE, SPACE, START, SampleSearch, history_of
from tests.tune.spaces import reported
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
    history, texts = search.history, MetricTexts(None)
    lines = table_lines(history, texts, is_running=is_running, now=history.last_time, width=width, rows=rows)
    return [text for text, _ in lines]


def started(trials: int, *, epochs: int = 10) -> tuple[SearchStarted, list[TrialAdded]]:
    """The start of a search that stops no trial early, and its trials."""
    start = SampleSearch(trials=trials, epochs=epochs, scheduler={"name": "none"}, until=0).events[0]
    assert isinstance(start, SearchStarted)
    return start, [TrialAdded(time=START, trial=f"t00{number}", values={}) for number in range(1, trials + 1)]


def test_a_pipe_gets_a_line_per_event_that_matters(tmp_path: Path) -> None:
    search = SampleSearch(trials=6, epochs=9, failing=FAILING)
    text = plain(search.events, search.write(tmp_path))
    lines = text.splitlines()
    assert lines[0] == "[   0.0 s] search digits-asha: 6 trials of 5 axes, max validation_accuracy, optuna, asha"
    assert lines[1] == "trial 0/6  0 running"
    assert re.match(r"\[   0\.0 s\] t001 added: learning_rate=0\.\d+, weight_decay=", lines[2])
    assert text.count(" added: ") == 6
    bests = re.findall(r"new best: validation accuracy (\d\d\.\d) % of t00\d after epoch \d\n", text)
    assert 2 <= len(bests) < sum(isinstance(event, TrialReported) for event in search.events)
    assert bests == sorted(set(bests))
    assert re.search(r"t004 failed after 2 of 9 epochs, .*: worker 1 ran out of memory\n", text)
    assert re.search(r"t00\d stopped after \d of 9 epochs, best validation accuracy .* of worker time: not among", text)
    assert re.search(r"digits-asha done after .*: all trials have ended, best t00\d; 6 of 6 trials ended", lines[-1])


def test_a_pipe_gets_the_lines_that_the_table_of_jobs_reads(tmp_path: Path) -> None:
    search = SampleSearch(trials=6, epochs=9, failing=FAILING)
    lines = plain(search.events, search.write(tmp_path)).splitlines()
    found = [one for line in lines if (one := read_progress_line(line))]
    ended = [one.done for one in found]
    assert ended == sorted(ended)
    assert (ended[0], {one.total for one in found}, {one.unit for one in found}) == (0, {6}, {"trial"})
    shown = r"\d/6 trials, \d running, 1 failed, best validation accuracy \d\d\.\d % \(t00\d, epoch \d\)"
    assert re.fullmatch(shown, str(found[-1]))
    assert re.fullmatch(r"at most \d+:\d\d", found[-1].left)


def test_progress_is_written_at_most_every_ten_seconds_and_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, *_ = SampleSearch(trials=2, until=0).events
    now = [1000.0]
    monkeypatch.setattr("tune.view.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    view = SearchView(stream, is_terminal=False)
    view.handle(first)
    view.handle(second)
    for later, running in ((0.0, [0]), (9.9, [0]), (0.1, [0, 1]), (60.0, [0, 1])):
        now[0] += later
        view.tick()
        lines = [line for line in stream.getvalue().splitlines() if read_progress_line(line)]
        assert lines == [f"trial 0/2  {count} running" for count in running], later


def test_an_exploitation_says_what_changed() -> None:
    text = plain(SampleSearch(trials=8, epochs=12, scheduler=PBT, space=PBT_SPACE).events)
    assert re.search(r"t00\d continues from t00\d after epoch \d+: learning_rate=[\de.-]+ \(was [\de.-]+\)", text)


def test_what_an_earlier_driver_logged_is_not_shown_again() -> None:
    search = SampleSearch(trials=6, epochs=9, until=20)
    shown = plain([replace(search.events[0], time=START + 500)], history=search.history)
    assert shown.startswith("[   0.0 s] search digits-asha")
    assert re.fullmatch(r".*\ntrial \d/6  \d running  best validation accuracy .*\n", shown)


def test_the_value_of_a_trial_that_failed_is_no_longer_the_best() -> None:
    start, added = started(2)
    failed = TrialEnded(time=START, trial="t001", status="failed", message="killed")
    first, second = (
        reported(trial, 1, START, validation_accuracy=one) for trial, one in (("t001", 0.9), ("t002", 0.5))
    )
    assert "new best: validation accuracy 0.5000 of t002" in plain([start, *added, first, failed, second])


def test_a_lower_loss_is_a_new_best() -> None:
    search = SampleSearch(trials=4, epochs=3, objectives={"validation_loss": "min"})
    values = [float(value) for value in re.findall(r"new best: validation loss ([\d.]+)", plain(search.events))]
    assert len(values) >= 2
    assert values == sorted(values, reverse=True)


def test_the_table_of_a_running_search_has_its_running_and_its_best_trials() -> None:
    lines = table(SampleSearch(trials=16, until=90), is_running=True)
    assert re.match(r"search digits-asha: running, \d+:\d\d  \d+ of 16 trials ended \(.*\), 4 running$", lines[0])
    best = r"best validation accuracy 0\.\d{4} \(t0\d\d, epoch \d+\)  .* of worker time  at most [\d:]+ left$"
    assert re.search(best, lines[1])
    assert lines[3].split()[:3] == ["trial", "status", "epoch"]
    rows = [row.split() for row in lines[4:]]
    assert [row[1] for row in rows[:4]] == ["running"] * 4
    assert 1 <= len(rows) - 4 <= 5
    values = [float(row[4]) for row in rows[4:]]
    assert values == sorted(values, reverse=True)
    assert len(table(SampleSearch(trials=16, until=60), is_running=True, rows=3)) == 3 + 4


def test_a_killed_search_has_interrupted_trials_and_a_finished_one_its_best_and_its_cost() -> None:
    killed = table(SampleSearch(trials=16, until=90), is_running=False)
    assert "search digits-asha: killed" in killed[0]
    assert ", 4 interrupted" in killed[0]
    assert "left" not in killed[1]
    search = SampleSearch(trials=8, stop={"dollars_per_worker_hour": 36.0})
    done = table(search, is_running=False)
    assert "search digits-asha: done" in done[0]
    assert f"${search.history.worker_seconds / 100:,.2f}" in done[1]
    assert done[4].split()[0] == search.history.ranked()[0].id


def test_a_search_and_a_trial_without_results_are_shown() -> None:
    assert table(SampleSearch(until=0, trials=1), is_running=True)[1] == "no result yet"
    empty = table_lines(SearchHistory(), MetricTexts(None), is_running=False, now=START, width=80, rows=9)
    assert empty == [("no search yet: its log has no start", "plain")]
    history = history_of(*SampleSearch(trials=2, until=0).events[:2])
    last = table_lines(history, MetricTexts(None), is_running=True, now=START, width=200, rows=9)[-1][0].split()
    assert last[:3] == ["t001", "running", "0/27"]
    assert not {"none", "ms"} & set(last)


def test_lines_fit_the_terminal_and_columns_are_left_out_as_a_whole() -> None:
    long = SampleSearch(trials=16, space=LONG_SPACE, until=60)
    for width in (20, 60, 80, 200):
        lines = table(long, is_running=True, width=width)
        assert max(map(len, lines)) <= width
        assert any(line.rstrip().endswith("…") for line in lines), width
    search = SampleSearch(trials=16, until=60)
    names = {"trial", "status", "epoch", "validation accuracy", "best", "worker time", "…"}
    names |= set(short_names(search.history.space.axes).values())
    headings = {width: table(search, is_running=True, width=width)[3] for width in (80, *range(90, 150, 3), 200)}
    for width, heading in headings.items():
        assert set(re.split(r" {2,}", heading)) <= names, width
    assert "learning_rate" in headings[80], "a setting rather than the worker time"
    assert headings[200].endswith("  worker time")


def test_the_status_of_a_folder_is_printed_as_the_trials_describe_their_metrics(tmp_path: Path) -> None:
    stream = io.StringIO()
    print_status(SampleSearch(trials=5).write(tmp_path), stream, is_running=False)
    assert "5 of 5 trials ended" in stream.getvalue()
    assert re.search(r"best validation accuracy \d\d\.\d %", stream.getvalue())


def test_several_objectives_have_columns() -> None:
    objectives = {"validation_accuracy": "max", "parameters": "min"}
    search = SampleSearch(trials=5, epochs=3, scheduler={"name": "none"}, objectives=objectives)
    heading = table(search, is_running=False)[3]
    assert re.search(r"validation accuracy +best +parameters +best +learning_rate", heading)


def test_the_time_left_is_that_of_the_epochs_to_come() -> None:
    start, added = started(2)
    reports = [reported("t001", epoch, START + 5 * epoch) for epoch in range(1, 5)]
    # 4 epochs took 20 s; 6 and 10 epochs are open.
    assert str(time_left(history_of(start, *added, *reports), now=START + 20)) == "about 1:20 left"
    assert time_left(history_of(start, *added, *reports[:1]), now=START + 5) is None
    early = SampleSearch(trials=4, scheduler={"name": "none"}, stop={"target": 0.9}, until=20).history
    assert str(time_left(early, now=early.last_time)).startswith("at most "), "it may end early"


def test_the_time_left_counts_neither_an_earlier_driver_nor_the_start_of_this_one() -> None:
    start, (added,) = started(1)
    times = [1, 2, 3, 110, 120, 130]
    before, after = [
        [reported("t001", epoch, START + times[epoch - 1]) for epoch in epochs] for epochs in ((1, 2, 3), (4, 5, 6))
    ]
    history = history_of(start, added, *before, replace(start, time=START + 100), *after)
    assert str(time_left(history, now=START + 130)) == "about 0:40 left"
    late = [reported("t001", epoch, START + 90 + epoch) for epoch in (1, 2, 3)]
    history = history_of(start, replace(added, time=START + 60), *late)
    assert str(time_left(history, now=START + 93)) == "about 0:07 left"


def test_each_trial_is_shown_and_estimated_with_its_own_number_of_epochs() -> None:
    start, _ = started(2)
    start.settings["space"] = {"loop.epochs": {"choice": [4, 8]}}
    added = [TrialAdded(time=START, trial=trial, values={"loop.epochs": n}) for trial, n in (("t001", 4), ("t002", 8))]
    reports = [reported("t001", epoch, START + epoch, validation_accuracy=0.5) for epoch in (1, 2, 3)]
    history = history_of(start, *added, *reports)
    lines = table_lines(history, MetricTexts(None), is_running=True, now=START + 3, width=120, rows=9)
    assert [text.split()[2] for text, _ in lines if text.startswith("t0")] == ["3/4", "0/8"]
    assert str(time_left(history, now=START + 3)) == "about 0:09 left", "1 and 8 epochs of a second each"


def test_a_grid_has_as_many_trials_as_combinations() -> None:
    space = {"optimizer.name": {"choice": ["sgd", "adamw"]}, "optimizer.learning_rate": {"choice": [0.1, 0.01, 0.001]}}
    assert SampleSearch(trials=16, algorithm="grid", space=space, until=0).history.planned == 6


def test_names_are_as_short_as_they_stay_unique() -> None:
    keys = ["optimizer.name", "schedule.name", "optimizer.learning_rate", "name"]
    assert short_names(keys) == dict(zip(keys, [*keys[:2], "learning_rate", "name"], strict=True))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal of 110 columns and 30 rows that records its output."""
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("LINES", "30")
    monkeypatch.setattr("tune.view._REFRESH_SECONDS", 0.0)
    return io.StringIO()


def test_a_terminal_redraws_the_table_and_keeps_notices(terminal: io.StringIO) -> None:
    view = SearchView(terminal, is_terminal=True)
    events = SampleSearch(trials=8, epochs=9, failing=FAILING).events
    for number, event in enumerate(events):
        view.handle(event)
        view.tick()
        if number == 0:  # Ray takes seconds to start
            assert "0 of 8 trials ended" in visible(terminal.getvalue())
    view.handle(SearchNotice(level="warning", message="MLflow does not answer"))
    view.close()
    text = visible(terminal.getvalue())
    assert text.count("warning: MLflow does not answer") == 1
    assert " added: " not in text
    last = text[text.rindex("search digits-asha: done") :].splitlines()
    assert "8 of 8 trials ended" in last[0]
    assert last[3].startswith("trial  status")
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex("\x1b[?25l"), "the cursor is visible"


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


def test_events_of_an_unknown_trial_are_shown_without_an_error() -> None:
    start = SearchStarted(search="a", settings={}, shared={}, objectives={"validation_loss": "min"})
    ended = SearchEnded(status="failed", reason="3 trials failed")
    assert "search a failed" in plain([start, reported("t009", 1, START, validation_loss=1.0), ended])
