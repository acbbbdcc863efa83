"""The report's figures and tables: configuration, environment and results of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from observability.cost import UNPAID
from observability.goodput import GoodputLedger
from observability.history import PARTS, RunHistory, part_seconds
from observability.quantities import duration, flop_rate, money, number, percent, size
from observability.report.palette import PART_VARIABLES
from observability.time_classes import MEANINGS

Row = tuple[str, str]
SHOWN_CHECKPOINTS = 8


@dataclass(frozen=True, kw_only=True)
class Share:
    """A part of a total time; `variable` is the CSS variable of its colour, `dollars` its cost, None without a price."""

    name: str
    seconds: float
    ratio: float
    variable: str
    meaning: str = ""
    dollars: float | None = None


def headline_figures(history: RunHistory) -> list[Row]:
    """Labels and values of the main figures."""
    best, test = history.best_validation(), history.test_evaluation()
    rows: list[Row] = []
    metric = history.objective.headline
    if test is not None:
        rows.append((f"test {metric.title}", metric.text(test.value(metric.name))))
    if best is not None:
        rows.append(("best validation", metric.text(best.value(metric.name))))
    planned = f" of {number(history.training.total_steps)}" if history.training else ""
    rows += [
        (f"steps{planned}", number(history.last_step)),
        (f"{history.objective.unit} per second", number(round(history.throughput()))),
        *_efficiency_figures(history),
        ("wall time", duration(history.seconds())),
        ("goodput", percent(history.goodput.ratio)),
        *cost_rows(history.goodput),
        (f"restarts, {number(history.lost_steps)} steps lost", number(len(history.restarts))),
    ]
    if skipped := len(history.skipped_steps):
        rows.append(("steps skipped, gradient not finite", number(skipped)))
    return rows


def cost_rows(ledger: GoodputLedger) -> list[Row]:
    """The cost of a run that knows its price; it is not the whole cost if some drivers knew none."""
    cost = ledger.cost
    if cost is None:
        return []
    label = (
        "cost" if cost.unpriced_seconds == 0 else f"cost, without {duration(cost.unpriced_seconds)} at an unknown price"
    )
    return [(label, money(cost.total))]


def _efficiency_figures(history: RunHistory) -> list[Row]:
    rate, mfu = history.flops_per_second(), history.mfu()
    rows = [] if rate is None else [("of the model", flop_rate(rate))]
    return rows if mfu is None else [*rows, ("MFU", percent(mfu))]


def run_rows(history: RunHistory, run_directory: Path) -> list[Row]:
    """Labels and values of the run: model, data, workers, times, and where its results are."""
    setting, training, ended = history.setting, history.training, history.ended
    rows = [
        ("model", str(setting("model.name"))),
        ("dataset", str(setting("data.dataset"))),
        ("workers", f"{setting('scale.workers')} on {'GPU' if setting('scale.gpu') else 'CPU'}"),
        ("launcher", str(setting("scale.launcher"))),
        ("seed", str(setting("run.seed"))),
        *code_rows(history.resumed.environment if history.resumed else {}),
    ]
    if history.started is not None:
        rows.append(("started", utc_time(history.started.time)))
    if ended is not None:
        rows.append(("ended", utc_time(ended.time)))
    if training is not None:
        rows += [
            ("parameters", number(training.parameters)),
            ("training samples", number(training.train_samples)),
            ("steps per epoch", number(training.steps_per_epoch)),
            ("dataset fingerprint", training.dataset_fingerprint),
        ]
    if history.flops is not None:
        rows.append(("FLOPs per sample", f"{history.flops.per_sample:.3g}"))
        peak = flop_rate(history.flops.peak) if history.flops.peak else "unknown"
        rows.append((f"peak of all ranks ({history.flops.device})", peak))
    if history.checkpoints:
        rows.append(("newest checkpoint", history.checkpoints[-1].path))
    if ended is not None and ended.weights_sha256:
        rows.append(("weights SHA-256", ended.weights_sha256))
    rows.append(("run directory", str(run_directory)))
    return rows


def code_rows(environment: Mapping[str, Any]) -> list[Row]:
    """The user's own code, if the environment records some: its hash, git commit, and archive. A resumed run shows the last."""
    code = environment.get("code")
    if code is None:
        return []
    rows = [("code SHA-256", str(code["sha256"]))]
    if code["revision"] is not None:
        rows.append(("code commit", f"{code['revision']}{', changed' if code['is_dirty'] else ''}"))
    return [*rows, ("code archive", f"{code['archive']}, {number(code['files'])} files")]


def evaluation_headings(history: RunHistory) -> tuple[str, ...]:
    """The headings of `evaluation_rows`."""
    return ("split", "epoch", "step", *(metric.title for metric in history.objective.metrics), "samples", "duration")


def evaluation_rows(history: RunHistory) -> list[tuple[str, ...]]:
    """Split, epoch, step, metrics, samples and duration of the test and of the best validation."""
    shown = [evaluation for evaluation in (history.test_evaluation(), history.best_validation()) if evaluation]
    return [
        (
            "best validation" if evaluation.split == "validation" else evaluation.split,
            number(evaluation.epoch),
            number(evaluation.step),
            *(metric.text(evaluation.value(metric.name)) for metric in history.objective.metrics),
            number(evaluation.samples),
            duration(evaluation.seconds),
        )
        for evaluation in shown
    ]


def checkpoint_rows(history: RunHistory) -> list[tuple[str, ...]]:
    """Step, size, stall, write time and name of the newest checkpoints, newest first."""
    return [
        (
            number(checkpoint.step),
            size(checkpoint.bytes),
            duration(checkpoint.stall_seconds),
            duration(checkpoint.write_seconds),
            Path(checkpoint.path).name,
        )
        for checkpoint in reversed(history.checkpoints[-SHOWN_CHECKPOINTS:])
    ]


def time_shares(history: RunHistory) -> list[Share]:
    """How the total step time divides into parts; parts that took no time are omitted."""
    sums = [sum(values) for values in zip(*map(part_seconds, history.steps), strict=True)]
    total = sum(sums)
    return [
        Share(name=name, seconds=seconds, ratio=seconds / total, variable=variable)
        for name, seconds, variable in zip(PARTS, sums, PART_VARIABLES, strict=False)
        if seconds > 0
    ]


def goodput_shares(ledger: GoodputLedger) -> list[Share]:
    """How the wall time of the run divides into the classes that took time; the productive one first, then the largest losses."""
    cost = ledger.cost
    taken = [("productive", ledger.seconds["productive"]), *ledger.losses()]
    return [
        Share(
            name=name,
            seconds=seconds,
            ratio=seconds / ledger.wall_seconds,
            variable=f"--time-{name}",
            meaning=MEANINGS[name],
            dollars=None if cost is None or name in UNPAID else cost.by_class[name],
        )
        for name, seconds in taken
        if seconds > 0
    ]


def flat_rows(tree: dict[str, Any]) -> list[Row]:
    """Dotted keys and values of a nested mapping."""
    return list(_leaves(tree, ""))


def _leaves(value: Any, path: str) -> Iterator[Row]:  # noqa: ANN401 - any JSON
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    else:
        yield path, value_text(value)


def value_text(value: Any) -> str:  # noqa: ANN401 - any JSON
    """A setting for people to read."""
    if value is None or value in ({}, []):
        return "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def utc_time(time: float) -> str:
    """A Unix time for people to read."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
