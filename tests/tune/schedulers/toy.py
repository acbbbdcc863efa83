"""Searches by the real Ray Tune whose trials train nothing: their metric is a formula of their values and epoch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ray import tune
from ray.tune import Callback
from ray.tune.search import Searcher

from observability.event_log import Event
from tests.engines.ray_cluster import SLOTS
from tests.tune.spaces import search_settings
from training.config.schema import OptionValue, ScaleSettings
from training.preflight import Machine
from tune.events import SearchLogWriter, TrialAdded, TrialEnded, TrialReported, TrialStatus
from tune.history import SearchHistory
from tune.resources import plan_trials
from tune.schedulers.recorded import RecordedScheduler
from tune.schedulers.results import FAILURE, failed_result
from tune.schedulers.stopper import SearchStopper
from tune.stopping import Ending

METRIC = "validation_accuracy"
RATE = "optimizer.learning_rate"
CHECKPOINT = "toy.json"
SMALL = search_settings()

Gain = Callable[[Mapping[str, Any], int, float], float]
"""What a trial's accuracy gains, from its values, its epoch and its accuracy before."""


class ToyTrial(tune.Trainable):
    """Gains `gain(values, epoch, accuracy)` per epoch; fails in the epoch that its `fails_at` names, its actor in that of `raises_at`."""

    def setup(self, config: dict[str, Any], *, epochs: int, gain: Gain, journal: Path) -> None:
        self._epochs, self._gain, self._journal = epochs, gain, journal
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._values = new_config
        self._epoch, self._accuracy = 0, 0.0
        return True

    def step(self) -> dict[str, Any]:
        self._epoch += 1
        if self._values.get("fails_at") == self._epoch:
            return failed_result(self._values["trial"], "this trial fails", metrics=[METRIC])
        if self._values.get("raises_at") == self._epoch:
            raise RuntimeError("the actor of this trial fails")
        self._accuracy += self._gain(self._values, self._epoch, self._accuracy)
        return {
            "trial": self._values["trial"],
            "epoch": self._epoch,
            "step": 10 * self._epoch,
            "seconds": float(self._epoch),
            METRIC: self._accuracy,
            "done": self._epoch >= self._epochs,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        state = {"epoch": self._epoch, "accuracy": self._accuracy, "of": self._values["trial"]}
        (Path(checkpoint_dir) / CHECKPOINT).write_text(json.dumps(state), encoding="utf-8")

    def load_checkpoint(self, checkpoint: str) -> None:
        state = json.loads((Path(checkpoint) / CHECKPOINT).read_text(encoding="utf-8"))
        self._epoch, self._accuracy = state["epoch"], state["accuracy"]
        with self._journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"by": self._values["trial"], **state}) + "\n")


class InOrder(Searcher):
    """Hands out trials in order, `t000`, `t001` and so on, with given values."""

    def __init__(self, values: Sequence[Mapping[str, OptionValue]]) -> None:
        super().__init__(metric=METRIC, mode="max")
        self._values = list(values)
        self._next = 0

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        del trial_id
        if self._next == len(self._values):
            return str(Searcher.FINISHED)
        values = self._values[self._next]
        self._next += 1
        return {"trial": f"t{self._next - 1:03}", **values}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:  # noqa: FBT001
        del trial_id, result, error


class _RayTrial(Protocol):
    config: dict[str, Any]


class Log(Callback):
    """Writes the search's log as its driver does: each evaluation once."""

    def __init__(self, directory: Path) -> None:
        self._history = SearchHistory.read(directory)
        self._writer = SearchLogWriter(directory)
        self.stopped: list[str] = []
        self.results: list[dict[str, Any]] = []

    def on_trial_result(self, *, trial: _RayTrial, result: dict[str, Any], **others: object) -> None:
        del others
        if FAILURE in result:
            self._end(trial, "failed")
            return
        name, epoch = result["trial"], result["epoch"]
        self.results.append({**trial.config, **result})
        if name not in self._history.trials:
            values = {key: value for key, value in trial.config.items() if key != "trial"}
            self._write(TrialAdded(trial=name, values=values))
        if epoch > self._history.trials[name].epoch:
            metrics = {METRIC: result[METRIC]}
            self._write(
                TrialReported(trial=name, epoch=epoch, step=10 * epoch, metrics=metrics, worker_seconds=float(epoch))
            )

    def on_trial_complete(self, *, trial: _RayTrial, **others: object) -> None:
        del others
        self._end(trial, "stopped" if trial.config["trial"] in self.stopped else "done")

    def on_trial_error(self, *, trial: _RayTrial, **others: object) -> None:
        del others
        self._end(trial, "failed")

    def _end(self, trial: _RayTrial, status: TrialStatus) -> None:
        name = trial.config["trial"]
        if name in self._history.trials and self._history.trials[name].ended is None:
            self._write(TrialEnded(trial=name, status=status))

    def _write(self, event: Event) -> None:
        self._writer.write(event)
        self._history.extend([event])

    @property
    def history(self) -> SearchHistory:
        return self._history


def search(
    directory: Path,
    values: Sequence[Mapping[str, OptionValue]],
    *,
    make: Callable[[SearchHistory, Log], RecordedScheduler],
    gain: Gain,
    epochs: int,
    concurrency: int = SLOTS,
    after_results: int | None = None,
) -> Log:
    """Search, or continue the search in a folder; ends after so many new evaluations, as if the driver was killed then."""
    log = Log(directory)
    earlier = SearchHistory.read(directory)
    known = sum(len(trial.reports) for trial in earlier.trials.values())

    def ending() -> Ending | None:
        reports = sum(len(trial.reports) for trial in log.history.trials.values()) - known
        return (
            Ending(status="done", reason="enough") if after_results is not None and reports >= after_results else None
        )

    plan = plan_trials(
        ScaleSettings(workers=1), SMALL.model_copy(update={"concurrency": concurrency}), Machine(SLOTS, 0)
    )
    trainable = tune.with_parameters(ToyTrial, epochs=epochs, gain=gain, journal=directory / "journal")
    tuner = tune.Tuner(
        tune.with_resources(trainable, tune.PlacementGroupFactory(plan.bundles)),
        tune_config=tune.TuneConfig(
            search_alg=InOrder(values), scheduler=make(earlier, log), num_samples=-1, reuse_actors=True
        ),
        run_config=tune.RunConfig(
            storage_path=str(directory / "tune"), callbacks=[log], verbose=0, stop=SearchStopper(ending)
        ),
    )
    tuner.fit()
    return log


def journal(directory: Path) -> list[dict[str, Any]]:
    """The checkpoints that trials have loaded, in order."""
    lines = (directory / "journal").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def outcome(history: SearchHistory) -> dict[str, tuple[str | None, int]]:
    """Status and epochs of each trial."""
    return {name: (trial.status, trial.epoch) for name, trial in history.trials.items()}
