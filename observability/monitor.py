"""A live view of a run in the terminal: progress, curves, step time, checkpoints, notices.

It only reads the run's event log, so it can be started and stopped at any time.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from observability.curves import braille
from observability.efficiency import efficiency_facts, gpu_facts
from observability.history import PARTS, RunHistory, State, part_seconds, state_of, units_of
from observability.progress import phase_text
from observability.quantities import clock, duration, number, size
from observability.runlog import Evaluated, RunLogReader

_POLL_SECONDS = 0.5
_SILENT_SECONDS = 30.0
_RECENT_STEPS = 100
_SHOWN_NOTICES = 3
_MIN_SHOWN_SHARE = 0.005
_CURVE_ROWS = 5
_STATE_STYLE: dict[State, str] = {
    "running": "cyan",
    "done": "green",
    "interrupted": "yellow",
    "failed": "red",
    "killed": "red",
}
_ALERT_STYLE = {"critical": "bold red", "warning": "yellow"}
_ALERT_SECONDS = 5.0
_PART_STYLE = dict(zip(PARTS, ("blue", "green", "magenta", "cyan", "yellow", "red", "bright_black"), strict=True))


@dataclass(frozen=True, kw_only=True)
class FiringAlert:
    """An alert about the run that fires: its severity is that of the rule, `action` the first thing to do."""

    name: str
    severity: str
    summary: str
    action: str


Alerts = Callable[[], Sequence[FiringAlert]]
"""Asks which alerts fire; quick, because the view waits for it."""


def _no_alerts() -> Sequence[FiringAlert]:
    return ()


def watch(
    run_directory: Path,
    *,
    is_running: Callable[[], bool],
    once: bool = False,
    alerts: Alerts = _no_alerts,
    stream: TextIO | None = None,
) -> State:
    """Show a run until its driver exits or Ctrl-C is pressed; the run is not affected.

    Args:
        run_directory: the run's directory; its `events.jsonl` may have yet to come.
        is_running: asks whether the run has a driver; one that was killed has recorded no end.
        once: print the current state once and return.
        alerts: asked every few seconds.
        stream: output; standard output by default.

    Returns:
        The state that was shown last.
    """
    console = Console(file=stream or sys.stdout, highlight=False)
    reader = RunLogReader(run_directory)
    history = RunHistory()
    state: State = "running"
    firing: Sequence[FiringAlert] = ()
    asked = -math.inf

    def read() -> RenderableType:
        nonlocal state, firing, asked
        has_driver = is_running()
        for event in reader.read_new():
            history.add(event)
        state = state_of(history.ended, is_running=has_driver)
        if time.monotonic() - asked >= _ALERT_SECONDS:
            firing, asked = alerts(), time.monotonic()
        return frame(history, state=state, now=time.time(), width=console.width, alerts=firing)

    view = read()
    if not once:
        # Ctrl-C only stops the view; the last frame is printed below in both cases.
        with suppress(KeyboardInterrupt), Live(view, console=console, screen=True, auto_refresh=False) as live:
            while state == "running":
                time.sleep(_POLL_SECONDS)
                view = read()
                live.update(view, refresh=True)
    console.print(view)
    return state


def frame(
    history: RunHistory, *, state: State, now: float, width: int, alerts: Sequence[FiringAlert] = ()
) -> RenderableType:
    """The view of a run at the Unix time `now`, for a terminal of `width` columns."""
    if history.resumed is None:
        return Text(
            "no events yet: the driver starts" if state == "running" else "no events: the driver did not start the run"
        )
    if state != "running":
        now = history.last_time
    parts: list[RenderableType] = [_header(history, state=state, now=now)]
    if alerts:
        parts.append(_firing(alerts))
    if history.training is None:
        parts.append(_startup(history, now=now))
    else:
        parts += [_progress(history, state=state), _curves(history, width=width)]
        if history.steps:
            parts.append(_time_split(history, width=width))
        parts.append(_results(history))
    if history.notices:
        parts.append(_notices(history))
    return Group(*parts)


def _header(history: RunHistory, *, state: State, now: float) -> RenderableType:
    text = Text.assemble((history.name, "bold"), "  ", (state, _STATE_STYLE[state]))
    text.append(f"  {duration(history.seconds(now=now))}")
    silent = now - history.last_time
    if history.ended is None and silent > _SILENT_SECONDS:
        text.append(f"  no events for {duration(silent)}", style="yellow")
    setting = history.setting
    facts = (
        f"{setting('model.name')} on {setting('data.dataset')}, {history.workers_text()} "
        f"({setting('scale.launcher')}), global batch {setting('loop.global_batch')}, {setting('precision.mode')}"
    )
    return Group(text, Text(facts, style="dim"))


def _firing(alerts: Sequence[FiringAlert]) -> RenderableType:
    lines = [
        Text.assemble((alert.name, _ALERT_STYLE.get(alert.severity, "")), f"  {alert.summary}\n  {alert.action}")
        for alert in alerts
    ]
    return Panel(Group(*lines), title="alerts", title_align="left", border_style="red")


def _startup(history: RunHistory, *, now: float) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    ends = [phase.time for phase in history.phases[1:]] + [now]
    for phase, end in zip(history.phases, ends, strict=True):
        table.add_row(phase_text(phase), Text(duration(end - phase.time), style="dim"))
    return Panel(table, title="start-up", title_align="left")


def _progress(history: RunHistory, *, state: State) -> RenderableType:
    assert history.training is not None, "frame() calls this only once training has started"
    total, done = history.training.total_steps, history.last_step
    rate = history.throughput(newest=_RECENT_STEPS)
    text = f"step {number(done)}/{number(total)}"
    if history.steps:
        newest = history.steps[-_RECENT_STEPS:]
        text += f"  epoch {newest[-1].epoch}/{history.epochs}  {number(rate)} {history.objective.unit}/s"
        text += "".join(f"  {fact}" for fact in efficiency_facts(history, newest=_RECENT_STEPS))
        if state == "running" and history.ended is None:
            text += f"  {clock((total - done) * sum(step.seconds for step in newest) / len(newest))} left"
    table = Table.grid(expand=True)
    table.add_row(ProgressBar(total=total, completed=done))
    table.add_row(text)
    return table


def _curves(history: RunHistory, *, width: int) -> RenderableType:
    steps = history.steps
    curves = Table.grid(expand=True)
    curves.add_column(ratio=1)
    curves.add_column(ratio=1)
    columns = max(10, width // 2 - 4)
    loss = [step.loss for step in steps]
    speed = [units_of(step) / step.seconds for step in steps]
    curves.add_row(
        _curve(loss, title=f"loss {loss[-1]:.4f}" if loss else "loss", columns=columns, style="cyan"),
        _curve(speed, title=f"{history.objective.unit}/s", columns=columns, style="green"),
    )
    return curves


def _curve(values: Sequence[float], *, title: str, columns: int, style: str) -> RenderableType:
    lines = braille(values, width=columns, height=_CURVE_ROWS)
    finite = [value for value in values if isfinite(value)]
    value_range = f"{number(min(finite))} to {number(max(finite))}" if finite else None
    return Panel(
        "\n".join(lines), title=title, title_align="left", subtitle=value_range, subtitle_align="right", style=style
    )


def _time_split(history: RunHistory, *, width: int) -> RenderableType:
    newest = history.steps[-_RECENT_STEPS:]
    sums = [sum(values) for values in zip(*map(part_seconds, newest), strict=True)]
    total = sum(sums)
    bar, legend = Text(no_wrap=True), Text()
    for part, seconds in zip(PARTS, sums, strict=True):
        bar.append("█" * round(seconds / total * (width - 4)), style=_PART_STYLE[part])
        if seconds / total >= _MIN_SHOWN_SHARE:
            legend.append("■ ", style=_PART_STYLE[part])
            legend.append(f"{part} {seconds / total:.0%}  ")
    title = f"step time: {duration(total / len(newest))}, mean of the last {len(newest)} steps"
    return Panel(Group(bar, legend), title=title, title_align="left")


def _results(history: RunHistory) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    best, test = history.best_validation(), history.test_evaluation()
    if best is not None:
        table.add_row("best validation", f"{_metrics(history, best)}, in epoch {best.epoch}")
    if test is not None:
        table.add_row("test", _metrics(history, test))
    if history.checkpoints:
        newest = history.checkpoints[-1]
        stall = max(checkpoint.stall_seconds for checkpoint in history.checkpoints)
        table.add_row(
            "checkpoints",
            f"{len(history.checkpoints)}, newest at step {newest.step} ({size(newest.bytes)}), "
            f"longest stall {duration(stall)}",
        )
    if history.ranks is not None and history.ranks.gpu_utilization:
        table.add_row("GPUs", gpu_facts(history.ranks))
    if history.restarts:
        table.add_row("restarts", f"{len(history.restarts)}, {history.lost_steps} steps lost")
    return table


def _metrics(history: RunHistory, evaluation: Evaluated) -> str:
    metrics = history.objective.metrics
    return ", ".join(f"{metric.title} {metric.text(evaluation.value(metric.name))}" for metric in metrics)


def _notices(history: RunHistory) -> RenderableType:
    styles = {"warning": "yellow", "error": "red"}
    lines = [Text(notice.message, style=styles.get(notice.level, "")) for notice in history.notices[-_SHOWN_NOTICES:]]
    return Panel(Group(*lines), title="notices", title_align="left")
