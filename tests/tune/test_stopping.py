"""When a search ends early, with the reason, and which results are refused."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from observability.event_log import Event
from tests.tune.spaces import reported, search_settings
from training.config.schema import ScaleSettings
from training.errors import SettingsError, TrainingFailedError
from tune.events import SearchStarted, TrialAdded, TrialEnded, TrialStatus
from tune.history import SearchHistory
from tune.schedulers.stopper import SearchStopper
from tune.stopping import Ending, check_result, ending_of, ending_of_all, ending_of_failure

ACCURACY = "validation_accuracy"

Trial = tuple[TrialStatus | None, Sequence[float]]
"""How a trial ended, if it has, and its metric after each epoch."""


def events(trials: Sequence[Trial], mode: str) -> Iterator[Event]:
    """Trials with their status and the metric of each epoch; they end in this order. Each epoch takes 1800 worker-seconds."""
    yield SearchStarted(time=0.0, search="s", settings={}, shared={}, objectives={ACCURACY: mode})
    for number, (status, values) in enumerate(trials):
        name = f"t{number:03}"
        yield TrialAdded(trial=name, values={})
        for epoch, value in enumerate(values, start=1):
            yield reported(name, epoch, seconds=1800.0 * epoch, **{ACCURACY: value})
        if status is not None:
            seconds = 1800.0 * len(values)
            yield TrialEnded(trial=name, status=status, message="it broke", time=number, worker_seconds=seconds)


def ending(*trials: Trial, mode: str = "max", scale: ScaleSettings | None = None, **stop: float) -> Ending | None:
    history = SearchHistory()
    history.extend(events(trials, mode))
    search = search_settings(stop=stop, gpus_per_worker=0.5)
    return ending_of(history, search, scale or ScaleSettings(workers=1))


def reason(*trials: Trial, **options: Any) -> str:  # noqa: ANN401 - passed through
    found = ending(*trials, **options)
    return "" if found is None else found.reason


def test_the_target_is_reached_by_the_best_epoch_of_any_trial() -> None:
    assert reason(("done", [0.5]), (None, [0.95, 0.8]), target=0.9) == (
        "t001 has reached the target: validation_accuracy 0.95, target 0.9"
    )
    assert reason(("done", [0.89]), target=0.9) == ""
    assert "0.1, target 0.1" in reason(("done", [0.5]), (None, [0.1]), target=0.1, mode="min")
    assert reason(("done", [0.2]), target=0.1, mode="min") == ""
    assert reason(("failed", [0.95]), target=0.9) == ""


def test_a_plateau_is_a_row_of_ended_trials_without_a_new_best() -> None:
    row: list[Trial] = [("done", [0.7]), ("stopped", [0.6]), ("done", [0.7])]
    assert reason(*row, plateau_trials=2) == "no better trial among the last 2 than t000: validation_accuracy 0.7"
    assert reason(*row, plateau_trials=3) == ""
    assert reason(*row, ("done", [0.8]), plateau_trials=2) == ""
    assert reason(*row[:2], ("failed", []), plateau_trials=2) == ""
    assert reason(*row, plateau_trials=2, mode="min") == ""
    assert reason(*row, (None, [0.8]), plateau_trials=2) == "", "one that still runs is better"
    assert reason(*row, (None, [0.65]), plateau_trials=2) != ""
    assert ending(*row, target=0.9, gpu_hours=9) is None


def test_hours_count_the_gpus_of_all_workers_or_their_cpus_and_dollars_the_workers() -> None:
    hour: Trial = (None, [0.1, 0.1])
    assert reason(hour, gpu_hours=1) == "the trials have used 1 CPU-hours of 1"
    assert reason(hour, gpu_hours=1.1) == ""
    four = ScaleSettings(workers=1, cpus_per_worker=4)
    assert reason(hour, gpu_hours=4, scale=four) == "the trials have used 4 CPU-hours of 4"
    half = ScaleSettings(workers=1, gpu=True)
    assert reason(hour, gpu_hours=1, scale=half) == ""
    assert reason(hour, hour, gpu_hours=1, scale=half) == "the trials have used 1 GPU-hours of 1"
    hours: list[Trial] = [("failed", [0.1, 0.1]), (None, [0.1])]
    assert reason(*hours, dollars=3, dollars_per_worker_hour=2) == "the trials have cost $3.00 of $3"
    assert reason(*hours, dollars=3.01, dollars_per_worker_hour=2) == ""


def test_the_others_go_on_until_so_many_trials_have_failed_since_the_search_was_continued() -> None:
    failed: Trial = ("failed", [0.9])
    assert ending(failed, failed, ("done", [0.1])) is None
    found = ending(failed, ("done", [0.1]), failed, failed)
    assert found == Ending(status="failed", reason="3 trials have failed (search.stop.failures=3), last t003: it broke")
    assert reason(failed, failures=1).startswith("1 trial has failed")
    history = SearchHistory()
    history.extend(events([failed], "max"))
    start = SearchStarted(time=9.0, search="s", settings={}, shared={}, objectives={ACCURACY: "max"})
    history.extend([start])
    assert ending_of(history, search_settings(stop={"failures": 1}), ScaleSettings(workers=1)) is None


def test_a_search_whose_trials_have_all_failed_has_failed() -> None:
    history = SearchHistory()
    assert ending_of_all(history).status == "done"
    for number, status in enumerate(("failed", "failed", "done"), start=1):
        name = f"t{number:03d}"
        history.extend([TrialAdded(trial=name, values={}), TrialEnded(trial=name, status=status, message="too wide")])  # type: ignore[arg-type]
        ending = ending_of_all(history)
        assert ending.status == ("failed" if status == "failed" else "done")
        assert (ending.reason == f"every trial has failed, last {name}: too wide") is (status == "failed")


def test_a_result_that_is_not_a_number_fails_the_trial_and_one_without_the_metric_the_search() -> None:
    good = {ACCURACY: 0.5, "validation_loss": 1.0, "seconds": 3.0, "epoch": 3, "weights_sha256": ""}
    check_result(good | {"validation_loss": math.nan}, {ACCURACY: "max"})
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(TrainingFailedError, match=rf"^{ACCURACY} is {value} after epoch 3"):
            check_result(good | {ACCURACY: value}, {ACCURACY: "max"})
    with pytest.raises(SettingsError) as error:
        check_result(good, {ACCURACY: "max", "validation_acuracy": "max"})
    assert str(error.value) == (
        "search.objectives.validation_acuracy: the trials report no such metric, but seconds, validation_accuracy, validation_loss; "
        "did you mean validation_accuracy?"
    )
    history = SearchHistory()
    history.extend([TrialAdded(trial="t001", values={})])
    assert ending_of_failure(str(error.value), history) == Ending(status="failed", reason=str(error.value))
    history.extend([reported("t001", 1, **{ACCURACY: 0.5})])
    assert ending_of_failure(str(error.value), history) is None, "others have reported it"


def test_the_stopper_keeps_the_first_reason_and_can_be_written_into_ray_s_snapshots() -> None:
    answers: list[Ending | None] = [None, Ending(status="done", reason="first"), Ending(status="done", reason="second")]
    stopper = SearchStopper(lambda: answers.pop(0))
    assert not stopper("id", {}), "no trial alone"
    assert [stopper.stop_all() for _ in range(3)] == [False, True, True]
    assert stopper.ending == Ending(status="done", reason="first")
    assert len(answers) == 1
    copy = pickle.loads(pickle.dumps(SearchStopper(lambda: None)))  # noqa: S301 - our own
    assert not copy.stop_all()
