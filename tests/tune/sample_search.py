"""Logs of searches from a small simulation: a toy learning curve, a few trials at a time, and a rule that stops or copies them.

The model's `skill` grows by a share of what it lacks; the share depends on the learning rate, and its ceiling on momentum and weight decay.
Values are drawn from the search's space, so that the log holds what a driver writes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from observability.event_log import Event
from observability.objective_metrics import Metric, ObjectiveInfo
from observability.runlog import RunLogWriter, TrainingStarted
from training.config.schema import OptionValue
from tune.events import (
    SearchEnded,
    SearchLogWriter,
    SearchNotice,
    SearchStarted,
    TrialAdded,
    TrialEnded,
    TrialExploited,
    TrialReported,
    TrialStatus,
)
from tune.history import SearchHistory
from tune.settings import SearchSettings
from tune.space.space import RandomDraw, Space

START = 1_790_000_000.0
NAME = "digits-asha"
STEPS_PER_EPOCH = 23
WORKERS = 2
SPACE: dict[str, Any] = {
    "optimizer.learning_rate": {"log_uniform": [1.0e-4, 1.0e-1]},
    "optimizer.weight_decay": {"uniform": [0.0, 0.1], "step": 0.01},
    "optimizer.name": {"choice": ["sgd", "adamw"]},
    "optimizer.momentum": {"uniform": [0.5, 0.99], "when": {"optimizer.name": "sgd"}},
    "model.options.width": {"integer": [8, 64], "step": 8},
}
ASHA = {"name": "asha", "grace_epochs": 1, "reduction_factor": 3}
PBT = {"name": "pbt", "every_epochs": 2}
PBT_SPACE: dict[str, Any] = {
    "optimizer.learning_rate": {"log_uniform": [1.0e-4, 1.0e-1]},
    "optimizer.weight_decay": {"uniform": [0.0, 0.1]},
    "optimizer.name": {"choice": ["sgd", "adamw"]},
}
CODE: dict[str, Any] = {
    "sha256": "3f2a9c81b7d40e56" * 4,
    "revision": "1a2b3c4d" * 5,
    "is_dirty": True,
    "archive": "code/a.tar.gz",
    "files": 7,
}
OBJECTIVE = ObjectiveInfo(
    metrics=(
        Metric(name="loss", label="cross-entropy (nats)"),
        Metric(name="accuracy", is_ratio=True, higher_is_better=True),
    ),
    ranked_by="accuracy",
)


@dataclass
class _Trial:
    """A trial that is being simulated."""

    id: str
    values: dict[str, OptionValue]
    epoch: int = 0
    skill: float = 0.0
    busy: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)


class SampleSearch:
    """Simulates a search of up to 27 epochs per trial; `events` has its log.

    Args:
        trials: number of trials.
        epochs: epochs of a whole trial.
        scheduler: the `scheduler` section.
        space: the `space` section.
        failing: messages by trial; each fails after its second epoch.
        until: number of evaluations after which the driver is killed; None lets it end.
        search: further settings of the `search` section.
        code: whether the search has code of one's own.
    """

    def __init__(
        self,
        *,
        trials: int = 16,
        epochs: int = 27,
        scheduler: Mapping[str, Any] = ASHA,
        space: Mapping[str, Any] = SPACE,
        failing: Mapping[str, str] | None = None,
        until: int | None = None,
        name: str = NAME,
        code: bool = False,
        seed: int = 0,
        **search: Any,  # noqa: ANN401 - any setting
    ) -> None:
        objectives = search.pop("objectives", {"validation_accuracy": "max"})
        section = {"trials": trials, "scheduler": scheduler, "space": space, "objectives": objectives, **search}
        self.settings = SearchSettings.model_validate(section)
        self._space = Space.of(self.settings.space)
        self._epochs, self._failing, self._until = epochs, dict(failing or {}), until
        self._random, self._draw = random.Random(seed), RandomDraw(str(seed))
        self._rungs: dict[int, list[float]] = {}
        self._now = START
        self.events: list[Event] = [
            SearchStarted(
                time=START,
                search=name,
                settings=self.settings.model_dump(mode="json"),
                shared={
                    "model": {"name": "simple_cnn"},
                    "data": {"dataset": "digits"},
                    "loop": {"epochs": epochs, "global_batch": 64},
                    "scale": {"launcher": "ray", "workers": WORKERS, "gpu": False},
                },
                objectives=dict(self.settings.objectives),
                environment={"host": "node-1", "user": "ada", "python": "3.11.7", "code": CODE if code else None},
            )
        ]
        self._simulate()

    def _simulate(self) -> None:
        slots = self.settings.trials if self.settings.is_population else (self.settings.concurrency or 4)
        running: list[_Trial] = []
        waiting = [f"t{number:03d}" for number in range(1, self.settings.trials + 1)]
        reports = 0
        while waiting or running:
            while waiting and len(running) < slots:
                trial = _Trial(waiting.pop(0), self._space.draw(self._draw), busy=self._now)
                running.append(trial)
                self.events.append(TrialAdded(time=self._now, trial=trial.id, values=dict(trial.values)))
            trial = min(running, key=lambda one: one.busy)
            if reports == self._until:
                return
            self._train_epoch(trial)
            reports += 1
            if (status := self._verdict(trial, running)) is not None:
                running.remove(trial)
                self._end(trial, *status)
        ranked = self.history.ranked()
        best = ranked[0].id if ranked else ""
        self.events.append(SearchEnded(time=self._now + 1, status="done", reason="all trials have ended", best=best))

    def _train_epoch(self, trial: _Trial) -> None:
        rate = float(trial.values["optimizer.learning_rate"])  # type: ignore[arg-type]
        width = int(trial.values.get("model.options.width", 32))  # type: ignore[arg-type]
        fit = math.exp(-(math.log10(rate / 4e-3) ** 2) / 0.8)
        ceiling = 0.9 + 0.08 * fit - 0.4 * abs(float(trial.values.get("optimizer.weight_decay", 0.01)) - 0.01)  # type: ignore[arg-type]
        trial.skill += 0.45 * fit * (ceiling - trial.skill)
        trial.epoch += 1
        trial.busy += (0.6 + 0.02 * width) * self._random.uniform(0.9, 1.15)
        self._now = max(self._now, trial.busy)
        accuracy = min(1.0, 0.1 + 0.9 * trial.skill + self._random.gauss(0, 0.006))
        trial.metrics = {"validation_accuracy": accuracy, "validation_loss": -math.log(max(accuracy, 1e-3)) + 0.02}
        self.events.append(
            TrialReported(
                time=self._now,
                trial=trial.id,
                epoch=trial.epoch,
                step=trial.epoch * STEPS_PER_EPOCH,
                metrics=trial.metrics | {"parameters": 900.0 * width},
                worker_seconds=self._seconds(trial),
            )
        )

    def _verdict(self, trial: _Trial, running: list[_Trial]) -> tuple[TrialStatus, str] | None:
        if trial.id in self._failing and trial.epoch == 2:
            return "failed", self._failing[trial.id]
        if trial.epoch == self._epochs:
            return "done", ""
        match self.settings.scheduler.name:
            case "asha":
                return self._halve(trial)
            case "pbt":
                self._exploit(trial, running)
        return None

    def _halve(self, trial: _Trial) -> tuple[TrialStatus, str] | None:
        """Stop a trial that is not among the best third of its rung so far."""
        factor = 3
        rungs = [factor**power for power in range(10) if factor**power < self._epochs]
        if trial.epoch not in rungs:
            return None
        seen = self._rungs.setdefault(trial.epoch, [])
        seen.append(trial.metrics["validation_accuracy"])
        if len(seen) < factor or trial.metrics["validation_accuracy"] >= sorted(seen)[-math.ceil(len(seen) / factor)]:
            return None
        return "stopped", f"not among the best 1/{factor} after epoch {trial.epoch}"

    def _exploit(self, trial: _Trial, running: list[_Trial]) -> None:
        """Let a trial of the worst quarter copy one of the best, with another learning rate and weight decay."""
        if trial.epoch % 2 or len(running) < 4:
            return
        ranked = sorted(running, key=lambda one: one.metrics.get("validation_accuracy", 0.0))
        quarter = max(1, len(ranked) // 4)
        if trial not in ranked[:quarter]:
            return
        donor = self._random.choice(ranked[-quarter:])
        for key in ("optimizer.learning_rate", "optimizer.weight_decay"):
            factor = self._random.choice((0.8, 1.2))
            trial.values[key] = self._space.axes[key].clip(float(donor.values[key]) * factor)  # type: ignore[arg-type]
        trial.values["optimizer.name"] = donor.values["optimizer.name"]
        trial.epoch, trial.skill = donor.epoch, donor.skill
        self.events.append(
            TrialExploited(
                time=self._now,
                trial=trial.id,
                donor=donor.id,
                epoch=donor.epoch,
                step=donor.epoch * STEPS_PER_EPOCH,
                weights_sha256=f"{donor.epoch:064x}",
                values=dict(trial.values),
            )
        )

    def _end(self, trial: _Trial, status: TrialStatus, message: str) -> None:
        ended = TrialEnded(
            time=self._now, trial=trial.id, status=status, message=message, worker_seconds=self._seconds(trial)
        )
        self.events.append(ended)
        if status == "failed":
            self.events.append(SearchNotice(time=self._now, level="warning", message=f"{trial.id} failed: {message}"))

    def _seconds(self, trial: _Trial) -> float:
        added = next(one for one in self.events if isinstance(one, TrialAdded) and one.trial == trial.id)
        return (trial.busy - added.time) * WORKERS

    @property
    def history(self) -> SearchHistory:
        """The history of the log."""
        return history_of(*self.events)

    def write(self, directory: Path) -> Path:
        """Write the log and the beginning of each trial's run log into a search's folder, and return it."""
        log = SearchLogWriter(directory)
        log.write(*self.events)
        log.close()
        for trial in self.history.trials:
            with RunLogWriter(directory / "trials" / trial) as writer:
                writer.write(
                    TrainingStarted(
                        time=START,
                        world=WORKERS,
                        start_step=0,
                        total_steps=self._epochs * STEPS_PER_EPOCH,
                        steps_per_epoch=STEPS_PER_EPOCH,
                        parameters=28_938,
                        train_samples=1437,
                        dataset_fingerprint="0" * 16,
                        objective=OBJECTIVE.record(),
                    )
                )
        return directory


def history_of(*events: Event) -> SearchHistory:
    """The history of these events."""
    history = SearchHistory()
    history.extend(events)
    return history
