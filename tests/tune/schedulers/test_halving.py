"""Brackets of Hyperband in orders of events that a real search cannot be brought to at will; trials and controller are doubles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ray.tune.experiment import Trial

from tests.tune.schedulers.toy import METRIC
from tune.schedulers.halving import Hyperband


@dataclass(eq=False)
class OneTrial:
    """What the scheduler uses of a trial of Ray Tune."""

    trial_id: str
    score: float
    status: str = str(Trial.RUNNING)
    is_saving: bool = False

    def __str__(self) -> str:
        return self.trial_id


@dataclass
class Controller:
    """Runs and stops trials as the scheduler says."""

    scheduler: Hyperband
    trials: list[OneTrial] = field(default_factory=list)

    def add(self, score: float) -> OneTrial:
        trial = OneTrial(f"t{len(self.trials)}", score)
        self.trials.append(trial)
        self.scheduler.on_trial_add(self, trial)
        return trial

    def get_trials(self) -> list[OneTrial]:
        return self.trials

    def stop_trial(self, trial: OneTrial) -> None:
        self.scheduler.on_trial_remove(self, trial)
        trial.status = str(Trial.TERMINATED)

    def report(self, trial: OneTrial, epoch: int) -> str:
        result: dict[str, Any] = {"epoch": epoch, METRIC: trial.score}
        decision = str(self.scheduler.on_trial_result(self, trial, result))
        if decision == "PAUSE":
            trial.status = str(Trial.PAUSED)
        if decision == "STOP":
            self.scheduler.on_trial_complete(self, trial, result)
            trial.status = str(Trial.TERMINATED)
        return decision

    def fail(self, trial: OneTrial) -> None:
        self.scheduler.on_trial_error(self, trial)
        trial.status = str(Trial.ERROR)

    def resume(self) -> OneTrial | None:
        trial: OneTrial | None = self.scheduler.choose_trial_to_run(self)
        if trial is not None:
            trial.status = str(Trial.RUNNING)
        return trial


def third_bracket() -> tuple[Controller, list[OneTrial]]:
    """A bracket of nine trials, of which the best three have passed its first rung, and run."""
    controller = Controller(Hyperband(metric=METRIC, mode="max", epochs=9, reduction_factor=3))
    for trial in [controller.add(0.0) for _ in range(3 + 5)]:
        controller.fail(trial)
    nine = [controller.add(float(score)) for score in range(9)]
    assert [controller.report(trial, 1) for trial in nine[:-1]] == ["PAUSE"] * 8
    assert controller.report(nine[-1], 1) == "CONTINUE"
    assert controller.resume() is nine[6]
    assert controller.resume() is nine[7]
    assert [trial.status for trial in nine[:6]] == [Trial.TERMINATED] * 6
    return controller, nine[6:]


def test_trials_at_a_rung_do_not_wait_for_one_that_failed_before_it() -> None:
    """Ray's own Hyperband never resumes them, and the search never ends."""
    controller, [bad, good, failing] = third_bracket()
    assert controller.report(bad, 3) == "PAUSE"
    assert controller.report(good, 3) == "PAUSE"
    assert controller.resume() is None
    controller.fail(failing)
    assert bad.status == Trial.TERMINATED
    assert controller.resume() is good


def test_a_trial_that_passes_the_last_rung_trains_to_its_end() -> None:
    controller, [bad, middle, good] = third_bracket()
    assert controller.report(bad, 3) == "PAUSE"
    assert controller.report(middle, 3) == "PAUSE"
    assert controller.report(good, 3) == "CONTINUE"
    assert [controller.report(good, epoch) for epoch in range(4, 9)] == ["CONTINUE"] * 5


def test_a_bracket_waits_for_all_its_trials_unless_no_more_will_come() -> None:
    controller = Controller(Hyperband(metric=METRIC, mode="max", epochs=9, reduction_factor=3))
    for trial in [controller.add(0.0) for _ in range(3)]:
        controller.fail(trial)
    bad, middle, good = (controller.add(score) for score in (1.0, 2.0, 3.0))
    assert [controller.report(trial, 3) for trial in (bad, middle)] == ["PAUSE", "PAUSE"]
    assert controller.resume() is None  # one still runs
    assert controller.report(good, 3) == "PAUSE"
    assert controller.resume() is middle
    assert bad.status == Trial.TERMINATED
    assert controller.resume() is good
