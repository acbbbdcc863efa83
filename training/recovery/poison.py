"""The evidence of failures that repeat: the attempts, and the samples of the step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from observability.runlog import RunLogReader, TrainingStarted
from training.config.schema import TrainingSettings
from training.recovery.policy import Incident


def describe_poison(incidents: Sequence[Incident], settings: TrainingSettings, run_directory: Path) -> str:
    """The failures that repeat, a line each, and where the samples of their step are found; empty without failures.

    Args:
        incidents: the failures, oldest first.
        settings: of the run.
        run_directory: its folder.
    """
    if not incidents:
        return ""
    lines = [f"  attempt {one.attempt}, {one.cause.text}: {one.failure.headline}" for one in incidents]
    step = incidents[-1].failure.step
    started = _started(run_directory)
    if step is not None and started is not None:
        lines.append(f"  {_samples(step, started, settings)}")
    return "\n".join(lines)


def _started(run_directory: Path) -> TrainingStarted | None:
    found = None
    for event in RunLogReader(run_directory).read_new():
        if isinstance(event, TrainingStarted):
            found = event
    return found


def _samples(step: int, started: TrainingStarted, settings: TrainingSettings) -> str:
    """Which samples the step reads. Their order is a function of seed, epoch and position alone (`training.data.sample_order`)."""
    epoch, in_epoch = divmod(step - 1, started.steps_per_epoch)
    first = in_epoch * settings.loop.global_batch
    last = min(first + settings.loop.global_batch, started.train_samples) - 1
    return (
        f"samples of step {step}: positions {first} to {last} of epoch {epoch + 1}; their ids are "
        f"sample_order(train, seed={settings.run.seed}, epoch={epoch})[{first}:{last + 1}] (training.data.sample_order)"
    )
