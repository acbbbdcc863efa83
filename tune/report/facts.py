"""The tables of a search's report: what it is, what it has found, and every trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from observability.quantities import counted, duration, money, number
from observability.report.facts import Row, code_rows, utc_time, value_text
from training.config.schema import OptionValue
from tune import texts
from tune.history import TrialHistory
from tune.report.data import SearchData
from tune.space.axes import Axis, Choice, Constant, Continuous
from tune.table import counts

_LONGEST_MESSAGE = 120


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message of one line, or the beginning of a longer one with all of it in `details`."""

    text: str
    details: str = ""
    level: str = ""

    @classmethod
    def of(cls, message: str, *, level: str = "") -> Message:
        """Shorten a message."""
        message = message.strip()
        first = message.partition("\n")[0]
        text = first if len(first) <= _LONGEST_MESSAGE else f"{first[:_LONGEST_MESSAGE]}…"
        return cls(text=text, details=message if text != message else "", level=level)


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    """A line of the table of trials.

    Attributes:
        status: as in `tune.table.trial_status`.
        cells: the other columns.
        message: why it was stopped or failed; empty if it was not.
    """

    status: str
    cells: list[str]
    message: Message


def headline_figures(data: SearchData) -> list[Row]:
    """Labels and values of the main figures."""
    history, rows = data.history, list[Row]()
    if data.best is not None:
        for name, mode in data.objectives:
            value = data.best.best(name, mode) if len(data.objectives) == 1 else data.best.value(name)
            rows.append((f"{data.texts.find(name).title}, {data.best.id}", data.texts.text(name, value)))
    found = [data.status(trial) for trial in data.trials]
    ended = sum(trial.ended is not None for trial in data.trials)
    rows.append((f"of {counted(history.planned, 'trial')} ended", number(ended)))
    rows += [(status, number(found.count(status))) for status in ("stopped", "failed") if status in found]
    rows.append(("wall time", duration(history.seconds())))
    if history.worker_seconds:
        rows.append(("worker time of all trials", duration(history.worker_seconds)))
    dollars = data.dollars(history.worker_seconds)
    return rows if dollars is None else [*rows, ("cost", money(dollars))]


def search_rows(data: SearchData, directory: Path) -> list[Row]:
    """Labels and values of the search: what it optimizes and how, who ran it where and when, and with what code."""
    history, settings = data.history, data.settings
    start = history.started[-1]
    environment = start.environment
    rows = [
        ("objective", ", ".join(f"{data.texts.find(name).title} ({mode})" for name, mode in data.objectives)),
        ("algorithm", str(settings.get("algorithm", "none"))),
        ("scheduler", _scheduler_text(settings.get("scheduler"))),
        ("trials", counts(history, is_running=data.is_running)),
        ("epochs of a whole trial", number(data.epochs)),
        ("workers per trial", str(start.shared.get("scale", {}).get("workers", "unknown"))),
        ("seed", str(settings.get("seed", "none"))),
    ]
    rows += [(f"stop: {key}", value_text(value)) for key, value in _stop(settings).items() if value is not None]
    rows += [("user", str(environment["user"]))] if environment.get("user") else []
    rows += [("host", str(environment["host"]))] if environment.get("host") else []
    rows.append(("started", utc_time(history.started[0].time)))
    if len(history.started) > 1:
        rows.append(("continued", f"{counted(len(history.started) - 1, 'time')}, the last at {utc_time(start.time)}"))
    if history.ended is not None:
        rows += [("ended", utc_time(history.ended.time)), ("reason", history.ended.reason)]
    return [*rows, *code_rows(environment), ("folder", str(directory))]


def space_rows(data: SearchData) -> list[Row]:
    """Each axis of the space and its values."""
    return [(key, axis_text(axis)) for key, axis in data.axes.items()]


def axis_text(axis: Axis) -> str:
    """The values of an axis: `0.0001 to 0.1, logarithmic`."""
    if isinstance(axis, Constant):
        text = f"always {texts.value_text(axis.value)}"
    elif isinstance(axis, Choice):
        text = "one of " + ", ".join(map(texts.value_text, axis.values))
    else:
        low, high = axis.extremes
        step = axis.step if isinstance(axis, Continuous) or axis.step != 1 else None
        parts = [f"{texts.value_text(low)} to {texts.value_text(high)}"]
        parts += ["logarithmic"] if axis.is_log else []
        parts += [f"in steps of {step:g}"] if step is not None else []
        parts += ["whole numbers"] if not isinstance(axis, Continuous) else []
        text = ", ".join(parts)
    for condition in axis.when:
        text += f"; if {condition.key} is {' or '.join(map(texts.value_text, condition.values))}"
    return text


def best_rows(data: SearchData) -> list[Row]:
    """The best trial: its result and its values; of a population the epochs that each value was trained for."""
    trial = data.best
    if trial is None:
        return []
    report = data.best_report(trial)
    rows = [("trial", trial.id)]
    if report is not None:
        rows.append(("best epoch", f"{number(report.epoch)} of {number(data.history.epochs_of(trial) or data.epochs)}"))
        names = dict.fromkeys([*(name for name, _ in data.objectives), *report.metrics])
        values = {**report.metrics, "seconds": trial.worker_seconds}
        rows += [(data.texts.find(name).title, data.texts.text(name, values[name])) for name in names if name in values]
    return [*rows, *((key, _schedule_text(data, trial, key)) for key in trial.values)]


def _schedule_text(data: SearchData, trial: TrialHistory, key: str) -> str:
    steps: list[tuple[int, object]] = []
    for start, _, value in data.steps(trial, key):
        if not steps or steps[-1][1] != value:
            steps.append((start, value))
    if len(steps) < 2:
        return _exact(trial.values[key])
    return ", ".join(f"{texts.value_text(value)} from epoch {start + 1}" for start, value in steps)  # type: ignore[arg-type]


def _exact(value: OptionValue) -> str:
    """A value with all its digits, so that it can be copied."""
    return repr(value) if isinstance(value, float) else texts.value_text(value)


def trial_headings(data: SearchData) -> list[str]:
    """The headings of the table of trials, but for status and message."""
    keys = texts.varying(data.trials)
    metrics = [data.texts.find(name).title for name, _ in data.objectives]
    best = [] if len(data.objectives) > 1 else [f"best {metrics[0]}"]
    cost = "worker time" if data.price is None else "cost"
    return [
        "trial",
        *best,
        *(f"newest {title}" for title in metrics),
        "epochs",
        cost,
        *texts.short_names(keys).values(),
    ]


def trial_rows(data: SearchData) -> list[TrialRow]:
    """Every trial, the best first, those without a result last."""
    keys = texts.varying(data.trials)
    return [_trial_row(data, trial, keys) for trial in data.by_rank()]


def _trial_row(data: SearchData, trial: TrialHistory, keys: list[str]) -> TrialRow:
    name, mode = data.objective
    best = [] if len(data.objectives) > 1 else [data.texts.text(name, trial.best(name, mode))]
    newest = [data.texts.text(metric, trial.value(metric)) for metric, _ in data.objectives]
    dollars = data.dollars(trial.worker_seconds)
    cost = duration(trial.worker_seconds) if dollars is None else money(dollars)
    values = [texts.value_text(trial.values[key]) if key in trial.values else "" for key in keys]
    return TrialRow(
        status=data.status(trial),
        cells=[trial.id, *best, *newest, number(trial.epoch), cost, *values],
        message=Message.of(trial.ended.message if trial.ended else ""),
    )


def notice_rows(data: SearchData) -> list[Message]:
    """The warnings and errors."""
    return [Message.of(one.message, level=one.level) for one in data.history.notices if one.level != "info"]


def _scheduler_text(section: object) -> str:
    if not isinstance(section, Mapping):
        return "none"
    rest = ", ".join(f"{key} {value_text(value)}" for key, value in section.items() if key != "name")
    return f"{section.get('name')} ({rest})" if rest else str(section.get("name"))


def _stop(settings: Mapping[str, object]) -> Mapping[str, object]:
    stop = settings.get("stop")
    return stop if isinstance(stop, Mapping) else {}
