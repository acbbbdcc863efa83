"""The table of a search in the terminal: how far it is, its running trials and the best of those that have ended.

It is plain text, so that `status` prints what the live table shows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from observability.quantities import clock, counted, duration, money
from observability.screens import Tone
from tune.estimate import time_left
from tune.history import SearchHistory, TrialHistory
from tune.texts import MetricTexts, short_names, value_text, varying

Line = tuple[str, Tone]

_SHOWN_ENDED = 5
_TONES: dict[str, Tone] = {
    "running": "plain",
    "done": "good",
    "stopped": "dim",
    "interrupted": "warning",
    "failed": "error",
}
_ENDED = ("done", "stopped", "failed")
_GAP = "  "


def print_status(directory: Path, stream: TextIO, *, is_running: bool, width: int = 120, rows: int = 24) -> None:
    """Print the table of a search once; it may be running, ended, or killed.

    Args:
        directory: the search's folder.
        stream: output.
        is_running: whether a driver holds the lock of the folder.
        width: columns of the output.
        rows: most trials to print.
    """
    history, texts, now = SearchHistory.read(directory), MetricTexts(directory), time.time()
    stream.writelines(
        f"{text}\n" for text, _ in table_lines(history, texts, is_running=is_running, now=now, width=width, rows=rows)
    )
    stream.flush()


def table_lines(
    history: SearchHistory, texts: MetricTexts, *, is_running: bool, now: float, width: int, rows: int
) -> list[Line]:
    """The lines of the table, none wider than `width`, with at most `rows` trials."""
    if not history.started:
        return [("no search yet: its log has no start", "plain")]
    lines: list[Line] = [(text, "plain") for text in summary(history, texts, is_running=is_running, now=now)]
    chosen = _chosen(history, rows)
    if chosen:
        lines.append(("", "plain"))
        cells = [_headings(history, texts), *(_cells(history, texts, trial, is_running=is_running) for trial in chosen)]
        tones: list[Tone] = ["dim", *(_TONES[trial_status(trial, is_running=is_running)] for trial in chosen)]
        lines += zip(_aligned(cells, width), tones, strict=True)
    return [(text if len(text) <= width else f"{text[: width - 1]}…", tone) for text, tone in lines]


def trial_status(trial: TrialHistory, *, is_running: bool) -> str:
    """`running`, `done`, `stopped` or `failed`; `interrupted` if no driver trains it."""
    return trial.status or ("running" if is_running else "interrupted")


def summary(history: SearchHistory, texts: MetricTexts, *, is_running: bool, now: float) -> list[str]:
    """How far the search is: counts of trials, best so far, time and an estimate of what is left."""
    status = history.status(is_running=is_running)
    seconds = history.seconds(now=now if is_running else None)
    lines = [f"search {history.name}: {status}, {clock(seconds)}{_GAP}{counts(history, is_running=is_running)}"]
    facts = [best_text(history, texts)]
    facts += [f"{duration(history.worker_seconds)} of worker time"] if history.worker_seconds else []
    price = history.started[-1].settings.get("stop", {}).get("dollars_per_worker_hour")
    if price is not None:
        facts.append(money(price * history.worker_seconds / 3600))
    if is_running and (left := time_left(history, now=now)) is not None:
        facts.append(str(left))
    return [*lines, _GAP.join(facts)]


def counts(history: SearchHistory, *, is_running: bool) -> str:
    """Trials by status: `9 of 16 trials ended (8 stopped, 1 failed), 4 running`."""
    found = [trial_status(trial, is_running=is_running) for trial in history.trials.values()]
    by_status = {status: f"{found.count(status)} {status}" for status in _TONES if status in found}
    ended = [text for status, text in by_status.items() if status in _ENDED]
    going = [text for status, text in by_status.items() if status not in _ENDED]
    count = sum(status in _ENDED for status in found)
    text = f"{count} of {counted(history.planned, 'trial')} ended" + (f" ({', '.join(ended)})" if ended else "")
    return ", ".join([text, *going])


def progress_line(history: SearchHistory, texts: MetricTexts, *, now: float) -> str:
    """How far a running search is, in the form that `platform_charts.jobs.progress` reads from a job's log."""
    found = [trial.status for trial in history.trials.values()]
    ended, planned, failed = len(found) - found.count(None), history.planned, found.count("failed")
    counted_trials = f"{found.count(None)} running" + (f", {failed} failed" if failed else "")
    left = time_left(history, now=now)
    parts = [counted_trials, best_text(history, texts) if history.ranked() else "", "" if left is None else str(left)]
    return _GAP.join([f"trial {ended:>{len(str(planned))}}/{planned}", *filter(None, parts)])


def best_text(history: SearchHistory, texts: MetricTexts) -> str:
    """The best trial by the first objective, with its best epoch."""
    ranked = history.ranked()
    if not ranked:
        return "no result yet"
    [metric, mode], *_ = history.objectives.items()
    best = ranked[0]
    value = best.best(metric, mode)
    epoch = next((one.epoch for one in best.own_reports if one.metrics.get(metric) == value), best.epoch)
    return f"best {texts.find(metric).title} {texts.text(metric, value)} ({best.id}, epoch {epoch})"


def _chosen(history: SearchHistory, rows: int) -> list[TrialHistory]:
    """The trials that have not ended, and the best of the others."""
    open_trials = [trial for trial in history.trials.values() if trial.ended is None][:rows]
    ended = [trial for trial in history.ranked() if trial.ended is not None]
    return [*open_trials, *ended[: min(_SHOWN_ENDED, rows - len(open_trials))]]


def _headings(history: SearchHistory, texts: MetricTexts) -> list[str]:
    keys = varying(history.trials.values())
    metrics = [heading for metric in history.objectives for heading in (texts.find(metric).title, "best")]
    return ["trial", "status", "epoch", *metrics, *short_names(keys).values(), "worker time"]


def _cells(history: SearchHistory, texts: MetricTexts, trial: TrialHistory, *, is_running: bool) -> list[str]:
    epochs = history.epochs_of(trial)
    metrics = [
        "" if math.isnan(value) else texts.text(metric, value)
        for metric, mode in history.objectives.items()
        for value in (trial.value(metric), trial.best(metric, mode))
    ]
    keys = varying(history.trials.values())
    values = [value_text(trial.values[key]) if key in trial.values else "" for key in keys]
    status = trial_status(trial, is_running=is_running)
    done = f"{trial.epoch}/{epochs}" if epochs else str(trial.epoch)
    seconds = duration(trial.worker_seconds) if trial.worker_seconds else ""
    return [trial.id, status, done, *metrics, *values, seconds]


def _aligned(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Rows as lines; the last columns are left out, with a mark, where they do not fit."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    shown = len(widths)
    while shown > 1 and sum(widths[:shown]) + len(_GAP) * (shown - 1) + (len(_GAP) + 1) * (shown < len(widths)) > width:
        shown -= 1
    more = f"{_GAP}…" if shown < len(widths) else ""
    return [
        _GAP.join(cell.ljust(size) for cell, size in zip(row[:shown], widths[:shown], strict=True)).rstrip()
        + (more if number == 0 else "")
        for number, row in enumerate(rows)
    ]
