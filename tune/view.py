"""Shows a search while it runs: a live table on a terminal, in a pipe or file one line per event that matters."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from observability.event_log import Event
from observability.objective_metrics import Metric
from observability.quantities import counted, duration
from observability.screens import PlainScreen, Tone
from tune.events import SearchEnded, SearchNotice, SearchStarted, TrialAdded, TrialEnded, TrialExploited, TrialReported
from tune.history import SearchHistory
from tune.table import counts, progress_line, table_lines
from tune.texts import MetricTexts, value_text, values_text

if TYPE_CHECKING:
    from tune.live_table import LiveTable

_REFRESH_SECONDS = 0.5
_LINE_SECONDS = 10.0
"""Between two lines that say how far the search is; trials that begin, end or lead have lines of their own."""

_PROGRESS = SearchStarted | TrialAdded | TrialReported | TrialEnded
_NOTICE_TONES: dict[str, Tone] = {"warning": "warning", "error": "error"}
_ENDED_TONES: dict[str, Tone] = {"done": "good", "interrupted": "warning"}


class SearchView:
    """Shows one search from the events of its driver. Safe to use from several threads: one may redraw while others handle events.

    Args:
        stream: output.
        is_terminal: whether it can redraw lines.
        directory: the search's folder, whose trials say how their metrics are written.
        history: what an earlier driver has logged and is not to be shown again.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        is_terminal: bool,
        directory: Path | None = None,
        history: SearchHistory | None = None,
    ) -> None:
        self._stream, self._is_terminal = stream, is_terminal
        self._plain = PlainScreen(stream)
        self._live: LiveTable | None = None
        self._drawn = -math.inf
        self._texts = MetricTexts(directory)
        self._history = history or SearchHistory()
        self._best = self._best_value()
        self._lock = threading.Lock()
        self._progress_shown = -math.inf  # Unix time
        self._changed: float | None = None  # monotonic time of the first change since then

    def say(self, text: str) -> None:
        """Show a line that does not come from an event."""
        with self._lock:
            self._print(text)

    def handle(self, event: Event) -> None:
        """Show an event."""
        with self._lock:
            self._show(event)
            if isinstance(event, _PROGRESS) and not self._is_terminal:
                self._changed = time.monotonic() if self._changed is None else self._changed
                if event.time - self._progress_shown >= _LINE_SECONDS:
                    self._show_progress(now=event.time)

    def _show(self, event: Event) -> None:
        trial = self._history.trials.get(event.trial) if isinstance(event, TrialExploited) else None
        before = {} if trial is None else dict(trial.values)
        self._history.extend([event])
        match event:
            case SearchStarted():
                self._line(event, self._headline(event))
            case TrialAdded():
                self._detail(event, f"{event.trial} added: {values_text(event.values)}")
            case TrialReported():
                self._reported(event)
            case TrialExploited():
                changed = {
                    key: f"{value_text(value)} (was {value_text(before[key]) if key in before else 'not set'})"
                    for key, value in event.values.items()
                    if key not in before or before[key] != value
                }
                self._detail(
                    event,
                    f"{event.trial} continues from {event.donor} after epoch {event.epoch}: {values_text(changed) or 'same values'}",
                )
            case TrialEnded():
                self._ended(event)
            case SearchNotice():
                label = f"{event.level}: " if event.level in _NOTICE_TONES else ""
                self._line(event, f"{label}{event.message}", _NOTICE_TONES.get(event.level, "plain"))
            case SearchEnded():
                self._changed = None  # its line says everything
                self._search_ended(event)

    def tick(self) -> None:
        """Redraw the table, or write how far the search is; call it several times a second."""
        now = time.monotonic()
        with self._lock:
            if self._changed is not None and now - self._changed >= _LINE_SECONDS:
                self._show_progress(now=time.time())
            if self._is_terminal and self._history.started and now - self._drawn >= _REFRESH_SECONDS:
                self._drawn = now
                self._draw()

    def close(self) -> None:
        """Leave the last table on the screen and restore the terminal."""
        with self._lock:
            if self._live is not None:
                self._draw()
                self._live.stop()
                self._live = None

    def _draw(self) -> None:
        if self._live is None:
            from tune.live_table import LiveTable  # noqa: PLC0415 - imports rich

            self._live = LiveTable(self._stream)
        width, height = self._live.size
        is_running = self._history.ended is None
        rows = max(1, height - 6)
        self._live.show(
            table_lines(self._history, self._texts, is_running=is_running, now=time.time(), width=width, rows=rows)
        )

    def _headline(self, event: SearchStarted) -> str:
        settings = event.settings
        objectives = " and ".join(f"{mode} {metric}" for metric, mode in event.objectives.items())
        scheduler = settings.get("scheduler", {}).get("name", "none")
        return (
            f"search {event.search}: {counted(self._history.planned, 'trial')} of {len(self._history.space.axes)} axes, {objectives}, "
            f"{settings.get('algorithm')}, {'no early stopping' if scheduler == 'none' else scheduler}"
        )

    def _reported(self, event: TrialReported) -> None:
        trial = self._history.trials.get(event.trial)
        if trial is None or not self._history.objectives:
            return
        [metric, mode], *_ = self._history.objectives.items()
        value = trial.best(metric, mode)
        if Metric(name=metric, higher_is_better=mode == "max").better(value, self._best):
            self._best = value
            text = f"{self._texts.find(metric).title} {self._texts.text(metric, value)}"
            self._detail(event, f"new best: {text} of {event.trial} after epoch {event.epoch}", "good")

    def _best_value(self) -> float:
        """The best value so far; NaN if there is none."""
        ranked = self._history.ranked()
        if not ranked:
            return math.nan
        [metric, mode], *_ = self._history.objectives.items()
        return ranked[0].best(metric, mode)

    def _ended(self, event: TrialEnded) -> None:
        trial = self._history.trials.get(event.trial)
        if trial is None:
            return
        metrics = [
            f"{self._texts.find(metric).title} {self._texts.text(metric, trial.best(metric, mode))}"
            for metric, mode in self._history.objectives.items()
        ]
        epochs = self._history.epochs_of(trial)
        parts = [
            f"{event.trial} {event.status} after {trial.epoch}{f' of {epochs}' if epochs else ''} epochs",
            *(f"best {text}" for text in metrics if trial.reports),
            f"{duration(trial.worker_seconds)} of worker time",
        ]
        text = ", ".join(parts) + (f": {_first_line(event.message)}" if event.message else "")
        if event.status == "failed":
            self._best = self._best_value()  # its own does not count any more
            self._line(event, text, "error")
        else:
            self._detail(event, text)

    def _search_ended(self, event: SearchEnded) -> None:
        best = f", best {event.best}" if event.best else ""
        text = f"search {self._history.name} {event.status} after {duration(self._history.seconds())}: {event.reason}{best}"
        self._line(event, f"{text}; {counts(self._history, is_running=False)}", _ENDED_TONES.get(event.status, "error"))

    def _show_progress(self, *, now: float) -> None:
        """Write how far the search is. The line's form is not changed by a time before it: `make jobs` reads it."""
        self._progress_shown, self._changed = now, None
        self._plain.line(progress_line(self._history, self._texts, now=now))

    def _detail(self, event: Event, text: str, tone: Tone = "plain") -> None:
        """A line that a terminal does not need, because its table says it."""
        if not self._is_terminal:
            self._line(event, text, tone)

    def _line(self, event: Event, text: str, tone: Tone = "plain") -> None:
        since = event.time - self._history.started[-1].time if self._history.started else 0.0
        self._print(text if self._is_terminal else f"[{since:6.1f} s] {text}", tone)

    def _print(self, text: str, tone: Tone = "plain") -> None:
        if self._live is not None:
            self._live.print_line(text, tone)
        else:
            self._plain.line(text)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
