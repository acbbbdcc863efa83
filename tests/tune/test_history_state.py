"""What the table and the report need of a search's history."""

from __future__ import annotations

import math

from tests.tune.sample_search import PBT, PBT_SPACE, START, SampleSearch, history_of
from training.config.schema import OptionValue
from tune.events import SearchNotice, SearchStarted, TrialAdded, TrialEnded, TrialExploited, TrialReported
from tune.history import SECONDS, SearchHistory
from tune.space.settings import AxisSettings
from tune.space.space import Space


def added(trial: str, rate: float) -> TrialAdded:
    """A trial with this learning rate."""
    return TrialAdded(time=START, trial=trial, values={"optimizer.learning_rate": rate})


def reported(trial: str, epoch: int, *, accuracy: float = 0.5, seconds: float = 0.0) -> TrialReported:
    """An evaluation."""
    metrics = {"validation_accuracy": accuracy}
    return TrialReported(trial=trial, epoch=epoch, step=epoch, metrics=metrics, worker_seconds=seconds)


def exploited(trial: str, donor: str, epoch: int, rate: float) -> TrialExploited:
    """A trial continues from a checkpoint of another."""
    values: dict[str, OptionValue] = {"optimizer.learning_rate": rate}
    return TrialExploited(trial=trial, donor=donor, epoch=epoch, step=epoch, weights_sha256="a" * 64, values=values)


def test_neither_an_exploitation_nor_a_repeated_epoch_gives_back_worker_seconds() -> None:
    two = [added("t001", 0.1), reported("t001", 2, seconds=20), reported("t001", 4, seconds=40)]
    assert history_of(*two, exploited("t001", "t002", 2, 0.3)).worker_seconds == 40
    again = history_of(added("t001", 0.1), reported("t001", 1, seconds=20), reported("t001", 1, seconds=35))
    assert (again.worker_seconds, again.trials["t001"].epoch) == (35, 1)


def test_trials_are_ranked_by_worker_seconds_and_not_without_a_start() -> None:
    started = SearchStarted(search="a", settings={}, shared={}, objectives={SECONDS: "min"})
    trials = [added("t001", 0.1), added("t002", 0.1), reported("t001", 1, seconds=20), reported("t002", 1, seconds=10)]
    assert [trial.id for trial in history_of(started, *trials).ranked()] == ["t002", "t001"]
    assert SearchHistory().ranked() == []


def test_events_of_an_unknown_trial_are_skipped_and_one_that_is_added_again_keeps_its_evaluations() -> None:
    ended = TrialEnded(trial="t001", status="done")
    lost = history_of(reported("t001", 1), exploited("t001", "t002", 1, 0.1), ended)
    assert lost.trials == {}
    twice = history_of(added("t001", 0.1), reported("t001", 1), added("t001", 0.1))
    copy = twice.copy()
    copy.extend([reported("t001", 2), SearchNotice(level="warning", message="disk is full")])
    assert (twice.trials["t001"].epoch, copy.trials["t001"].epoch) == (1, 2), "a copy is extended on its own"
    assert [one.message for one in copy.notices] == ["disk is full"]


def test_a_trial_has_trained_as_long_as_the_checkpoint_that_it_has_copied() -> None:
    """The donor may be ahead of it, or behind."""
    own = [added("t001", 0.1), added("t002", 0.2), reported("t001", 2), reported("t001", 4)]
    assert history_of(*own, exploited("t001", "t002", 6, 0.3)).trials["t001"].epoch == 6
    assert history_of(*own, exploited("t001", "t002", 2, 0.3)).trials["t001"].epoch == 2
    assert history_of(*own, exploited("t001", "t002", 6, 0.3), reported("t001", 8)).trials["t001"].epoch == 8


def test_the_best_value_is_one_of_the_weights_that_a_trial_has_now() -> None:
    history = history_of(
        added("t001", 0.1),
        added("t002", 0.2),
        reported("t001", 2, accuracy=0.9),
        reported("t002", 2, accuracy=0.8),
        exploited("t001", "t002", 2, 0.3),
    )
    assert math.isnan(history.trials["t001"].best("validation_accuracy", "max")), "not evaluated yet"
    history.extend([reported("t001", 3, accuracy=0.85)])
    assert history.trials["t001"].best("validation_accuracy", "max") == 0.85


def test_the_schedule_of_a_clone_begins_with_that_of_its_donor() -> None:
    history = history_of(
        *(added(f"t00{number}", number / 10) for number in (1, 2, 3, 4)),
        exploited("t002", "t001", 2, 0.12),
        exploited("t003", "t002", 4, 0.15),
        exploited("t002", "t001", 6, 0.08),
        exploited("t004", "t002", 0, 0.3),
        exploited("t004", "t002", 0, 0.4),
    )

    def stretches(trial: str) -> list[tuple[str, int, object]]:
        schedule = history.trials[trial].schedule
        return [(one.trial, one.epoch, one.values["optimizer.learning_rate"]) for one in schedule]

    assert stretches("t003") == [("t001", 0, 0.1), ("t002", 2, 0.12), ("t003", 4, 0.15)]
    assert [value for *_, value in stretches("t004")][-1:] == [0.4], "values that never trained leave no stretch"


def test_pauses_between_drivers_do_not_count() -> None:
    def start(time: float) -> SearchStarted:
        return SearchStarted(time=time, search="a", settings={}, shared={}, objectives={})

    notice = SearchNotice(time=START + 10, level="info", message="")
    history = history_of(start(START), notice, start(START + 1000))
    assert history.seconds() == 10
    assert history.seconds(now=START + 1005) == 15


def test_a_whole_population_is_folded() -> None:
    history = SampleSearch(trials=8, epochs=12, scheduler=PBT, space=PBT_SPACE).history
    assert history.space == Space.of({key: AxisSettings.model_validate(axis) for key, axis in PBT_SPACE.items()})
    copied = [trial for trial in history.trials.values() if trial.exploits]
    assert len(copied) >= 2
    for trial in history.trials.values():
        epochs = [one.epoch for one in trial.schedule]
        assert epochs == sorted(set(epochs))
        assert dict(trial.schedule[-1].values) == dict(trial.values)
        assert not math.isnan(trial.best("validation_accuracy", "max"))


def test_trials_may_have_different_numbers_of_epochs() -> None:
    start = SearchStarted(time=START, search="s", settings={}, shared={"loop": {"epochs": 10}}, objectives={})
    own = TrialAdded(time=START, trial="t002", values={"loop.epochs": 20})
    history = history_of(start, added("t001", 0.1), own)
    assert [history.epochs_of(trial) for trial in history.trials.values()] == [10, 20]
