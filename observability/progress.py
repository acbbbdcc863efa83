"""Shows the progress of a run from its events: start-up, steps, evaluations, notices, result."""

from __future__ import annotations

from typing import TextIO

from observability.efficiency import efficiency_facts
from observability.history import RunHistory
from observability.profiling.answer import answer_lines
from observability.quantities import clock, counted, duration, number
from observability.runlog import (
    Evaluated,
    Event,
    Notice,
    Phase,
    ProfileAnswered,
    Restored,
    RunEnded,
    RunStarted,
    Step,
    TrainingStarted,
)
from observability.screens import PlainScreen, Screen, TerminalScreen, Tone

PHASE_TEXTS = {
    "imports": "loading Python packages",
    "ray_start": "starting Ray",
    "backoff": "waiting before the restart",
    "workers_start": "starting workers",
    "connect": "connecting the ranks",
    "cache": "copying the dataset",
    "data": "preparing data",
    "model": "building the model",
    "first_batch": "loading the first batch",
    "train": "training",
    "finish": "saving the result",
}
"""The text shown for each phase."""

_DRIVER_PHASE_TEXTS = {"finish": "stopping the workers"}

_LINE_SECONDS = 2.0
_WINDOW_STEPS = 50


def phase_text(phase: Phase) -> str:
    """The text shown for a phase; its name if the phase is unknown."""
    texts = PHASE_TEXTS | _DRIVER_PHASE_TEXTS if phase.process == "driver" else PHASE_TEXTS
    return texts.get(phase.name, phase.name.replace("_", " "))


class ProgressView:
    """Shows one run from its first event to its last.

    A terminal shows steps as a bar, which `tick` redraws. A pipe or file gets a line every two seconds of event time, so that
    the same events always give the same lines.
    """

    def __init__(self, stream: TextIO, *, is_terminal: bool) -> None:
        self._screen: Screen = TerminalScreen(stream) if is_terminal else PlainScreen(stream)
        self._is_terminal = is_terminal
        self._history = RunHistory()
        self._shown_time = float("-inf")
        self._shown_step = 0

    def say(self, text: str) -> None:
        """Show a line that does not come from an event."""
        self._screen.line(text)

    def handle(self, event: Event) -> None:
        """Show an event."""
        if isinstance(event, RunEnded | Phase):
            self._show_last_step()
        self._history.add(event)
        match event:
            case Step():
                self._step(event)
            case Evaluated():
                self._evaluated(event)
            case Phase():
                self._screen.begin(phase_text(event), at=event.time)
            case RunStarted():
                self._screen.line(_headline(self._history))
            case TrainingStarted():
                self._training_started(event)
            case Restored():
                self._restored(event)
            case Notice() | ProfileAnswered():
                self._message(event)
            case RunEnded():
                self._ended(event)

    def tick(self) -> None:
        """Redraw what changes with time; call it several times a second."""
        if self._is_terminal:
            self._show_last_step()
        self._screen.refresh()

    def close(self) -> None:
        """Restore the terminal."""
        self._screen.finish(at=self._history.last_time)

    def _training_started(self, event: TrainingStarted) -> None:
        self._screen.finish(at=event.time)
        ranks = counted(event.world, "rank")
        whole = f"({counted(self._history.epochs, 'epoch')} of {number(event.train_samples)} samples)"
        first, last = event.start_step + 1, event.total_steps
        if first > last:
            self._screen.line(f"nothing left to train: all {number(last)} steps {whole} are done")
        else:
            self._screen.line(
                f"training steps {number(first)} to {number(last)} {whole} on {ranks}, "
                f"{number(event.parameters)} parameters"
            )
        if event.metrics_url:
            self._screen.line(f"metrics: {event.metrics_url}", tone="dim")
        self._shown_step = event.start_step

    def _step(self, event: Step) -> None:
        if not self._is_terminal and event.time - self._shown_time >= _LINE_SECONDS:
            self._show(event)

    def _show_last_step(self) -> None:
        """Show the newest step unless it has been shown."""
        if self._history.steps and self._history.last_step > self._shown_step:
            self._show(self._history.steps[-1])

    def _show(self, step: Step) -> None:
        history = self._history
        assert history.training is not None, "steps follow TrainingStarted"
        self._shown_time, self._shown_step = step.time, step.step
        parts = [
            f"epoch {step.epoch}/{history.epochs}",
            *_metric_texts(history, step),
            f"{number(history.throughput(newest=_WINDOW_STEPS))} {history.objective.unit}/s",
        ]
        left = history.training.total_steps - step.step
        if left:
            parts.append(f"{clock(left * self._seconds_per_step())} left")
        self._screen.advance(step.step, history.training.total_steps, "  ".join(parts))

    def _seconds_per_step(self) -> float:
        """Mean time between the newest steps, including evaluations and checkpoints between them."""
        history = self._history
        assert history.training is not None, "steps follow TrainingStarted"
        since_start = history.last_step - history.training.start_step
        newest = history.steps[-min(_WINDOW_STEPS, since_start) :]
        if len(newest) == 1:
            return newest[0].seconds
        return (newest[-1].time - newest[0].time) / (len(newest) - 1)

    def _evaluated(self, event: Evaluated) -> None:
        name = f"epoch {event.epoch:>{len(str(self._history.epochs))}}/{self._history.epochs}"
        self._screen.line(
            f"{name}  {event.split:<10}  {'  '.join(_metric_texts(self._history, event))}  "
            f"({number(event.samples)} samples in {duration(event.seconds)})"
        )

    def _restored(self, event: Restored) -> None:
        for reason in event.skipped:
            self._screen.line(f"warning: checkpoint failed verification: {reason}", tone="warning")
        source = event.path if event.from_rank is None else f"from the memory of rank {event.from_rank}"
        self._screen.line(f"resuming from step {event.step}: {source}")

    def _message(self, event: Notice | ProfileAnswered) -> None:
        if isinstance(event, ProfileAnswered):
            for line in answer_lines(event):
                self._screen.line(line, tone="warning" if event.state == "refused" else "plain")
            return
        tones: dict[str, Tone] = {"warning": "warning", "error": "error"}
        label = f"{event.level}: " if event.level in tones else ""
        self._screen.line(f"{label}{event.message}", tone=tones.get(event.level, "plain"))

    def _ended(self, event: RunEnded) -> None:
        self._screen.finish(at=event.time)
        history = self._history
        tones: dict[str, Tone] = {"done": "good", "interrupted": "warning"}
        metric = history.objective.headline
        facts = [f"{history.last_step} steps"]
        if skipped := len(history.skipped_steps):
            facts[0] += f", {skipped} of them skipped"
        if history.steps:
            facts.append(f"{number(history.throughput())} {history.objective.unit}/s")
            facts += efficiency_facts(history)
        best, test = history.best_validation(), history.test_evaluation()
        if best is not None:
            facts.append(f"best validation {metric.title} {metric.text(best.value(metric.name))} in epoch {best.epoch}")
        if test is not None and event.status == "done":
            facts.append(f"test {metric.title} {metric.text(test.value(metric.name))}")
        text = f"{event.status} after {duration(history.seconds())}: {', '.join(facts)}"
        self._screen.line(text, tone=tones.get(event.status, "error"))


def _metric_texts(history: RunHistory, measured: Step | Evaluated) -> list[str]:
    """The metrics of a line: `loss 0.1234`, `accuracy 97.5 %`."""
    return [f"{metric.title} {metric.text(measured.value(metric.name))}" for metric in history.objective.shown]


def _headline(history: RunHistory) -> str:
    """The run and its main settings in one line."""
    setting = history.setting
    device = "GPU" if setting("scale.gpu") else "CPU"
    return (
        f"run {history.name}: {setting('model.name')} on {setting('data.dataset')}, "
        f"{history.workers_text(f'{device} worker')} ({setting('scale.launcher')}), "
        f"global batch {setting('loop.global_batch')}"
    )
