"""The report's figures and tables: configuration, environment and results of a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from observability.history import PARTS, RunHistory, part_seconds
from observability.quantities import duration, number, percent, size
from observability.report.palette import PART_VARIABLES

Row = tuple[str, str]
SHOWN_CHECKPOINTS = 8


@dataclass(frozen=True, kw_only=True)
class Share:
    """A part of the total step time; `variable` is the CSS variable of its colour."""

    name: str
    seconds: float
    ratio: float
    variable: str


def headline_figures(history: RunHistory) -> list[Row]:
    """Labels and values of the main figures."""
    best, test = history.best_validation(), history.test_evaluation()
    rows: list[Row] = []
    if test is not None:
        rows.append(("test accuracy", percent(test.accuracy)))
    if best is not None:
        rows.append(("best validation", percent(best.accuracy)))
    planned = f" of {number(history.training.total_steps)}" if history.training else ""
    rows += [
        (f"steps{planned}", number(history.last_step)),
        ("samples per second", number(round(history.samples_per_second()))),
        ("wall time", duration(history.seconds())),
        (f"restarts, {number(history.lost_steps)} steps lost", number(len(history.restarts))),
    ]
    return rows


def run_rows(history: RunHistory, run_directory: Path) -> list[Row]:
    """Labels and values of the run: model, data, workers, times, and where its results are."""
    setting, training, ended = history.setting, history.training, history.ended
    rows = [
        ("model", str(setting("model.name"))),
        ("dataset", str(setting("data.dataset"))),
        ("workers", f"{setting('scale.workers')} on {'GPU' if setting('scale.gpu') else 'CPU'}"),
        ("launcher", str(setting("scale.launcher"))),
        ("seed", str(setting("run.seed"))),
    ]
    if history.started is not None:
        rows.append(("started", _utc_time(history.started.time)))
    if ended is not None:
        rows.append(("ended", _utc_time(ended.time)))
    if training is not None:
        rows += [
            ("parameters", number(training.parameters)),
            ("training samples", number(training.train_samples)),
            ("steps per epoch", number(training.steps_per_epoch)),
            ("dataset fingerprint", training.dataset_fingerprint),
        ]
    if history.checkpoints:
        rows.append(("newest checkpoint", history.checkpoints[-1].path))
    if ended is not None and ended.weights_sha256:
        rows.append(("weights SHA-256", ended.weights_sha256))
    rows.append(("run directory", str(run_directory)))
    return rows


def evaluation_rows(history: RunHistory) -> list[tuple[str, ...]]:
    """Split, epoch, step, loss, accuracy, samples and duration of the test and of the best validation."""
    shown = [evaluation for evaluation in (history.test_evaluation(), history.best_validation()) if evaluation]
    return [
        (
            "best validation" if evaluation.split == "validation" else evaluation.split,
            number(evaluation.epoch),
            number(evaluation.step),
            f"{evaluation.loss:.4f}",
            percent(evaluation.accuracy),
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


def flat_rows(tree: dict[str, Any]) -> list[Row]:
    """Dotted keys and values of a nested mapping."""
    return list(_leaves(tree, ""))


def _leaves(value: Any, path: str) -> Iterator[Row]:  # noqa: ANN401 - any JSON
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    else:
        yield path, _value_text(value)


def _value_text(value: Any) -> str:  # noqa: ANN401 - any JSON
    if value is None or value in ({}, []):
        return "none"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _utc_time(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
