"""ASHA of a continued search knows the whole record before the first trial repeats its own, in whatever order they do."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.tune.schedulers.toy import METRIC
from tests.tune.spaces import reported, search_settings
from tune.events import TrialAdded, TrialEnded, TrialReported, TrialStatus
from tune.history import SearchHistory
from tune.schedulers.build import make_scheduler
from tune.schedulers.recorded import RecordedScheduler, Stop
from tune.space.space import Space


def report(trial: str, epoch: int, score: float, time: float) -> TrialReported:
    return reported(trial, epoch, time, **{METRIC: score})


def recorded(*reports: TrialReported, ended: dict[str, TrialStatus]) -> SearchHistory:
    history = SearchHistory()
    history.extend(TrialAdded(trial=name, values={}) for name in dict.fromkeys(one.trial for one in reports))
    history.extend(reports)
    history.extend(TrialEnded(trial=name, status=status, time=9.0) for name, status in ended.items())
    return history


def continued(history: SearchHistory) -> tuple[RecordedScheduler, list[Stop]]:
    stops: list[Stop] = []
    settings = search_settings({"name": "asha"})
    space = Space.of(settings.space)
    scheduler = make_scheduler(
        settings, space, epochs=9, metric=METRIC, mode="max", history=history, on_stop=stops.append
    )
    return scheduler, stops


def decision(scheduler: RecordedScheduler, trial: str, epoch: int, score: float) -> str:
    actor: Any = SimpleNamespace(config={"trial": trial}, trial_id=f"ray-{trial}")
    if epoch == 1:
        scheduler.on_trial_add(None, actor)
    return scheduler.on_trial_result(None, actor, {"trial": trial, "epoch": epoch, METRIC: score})


def test_a_new_trial_is_compared_with_trials_that_have_not_repeated_their_record_yet() -> None:
    history = recorded(report("t001", 1, 0.9, 1.0), report("t001", 2, 0.9, 2.0), ended={})
    scheduler, stops = continued(history)
    assert decision(scheduler, "t002", 1, 0.5) == "STOP"
    assert stops == [Stop(trial="t002", epoch=1, scheduler="asha")]
    fresh, _ = continued(SearchHistory())
    assert decision(fresh, "t002", 1, 0.5) == "CONTINUE"


def test_a_metric_that_is_no_number_is_worse_than_every_other() -> None:
    scheduler, stops = continued(recorded(report("t001", 1, math.nan, 1.0), ended={}))
    assert decision(scheduler, "t002", 1, -5.0) == "CONTINUE"
    assert decision(scheduler, "t003", 1, math.nan) == "STOP"
    assert decision(scheduler, "t004", 1, -8.0) == "STOP"
    assert [stop.trial for stop in stops] == ["t003", "t004"]


def test_a_trial_goes_on_as_far_as_its_log_does() -> None:
    """t001 passed the first rung because it was the first there; repeated after t002 it would be stopped."""
    reports = [
        report("t001", 1, 0.5, 1.0),
        report("t002", 1, 0.9, 2.0),
        report("t003", 1, 0.6, 3.0),
        report("t001", 2, 0.5, 4.0),
    ]
    scheduler, stops = continued(recorded(*reports, ended={"t003": "stopped"}))
    assert decision(scheduler, "t003", 1, 0.6) == "STOP"
    assert decision(scheduler, "t002", 1, 0.9) == "CONTINUE"
    assert decision(scheduler, "t001", 1, 0.5) == "CONTINUE"
    assert decision(scheduler, "t001", 2, 0.5) == "CONTINUE"
    assert stops == []  # that of t003 is recorded already
    assert decision(scheduler, "t001", 3, 0.5) == "CONTINUE"  # alone at the second rung
    assert decision(scheduler, "t002", 2, 0.9) == "CONTINUE"
    assert decision(scheduler, "t002", 3, 0.4) == "STOP"


def test_a_stop_that_a_killed_driver_did_not_record_is_decided_again() -> None:
    scheduler, stops = continued(recorded(report("t001", 1, 0.9, 1.0), report("t002", 1, 0.5, 2.0), ended={}))
    assert decision(scheduler, "t002", 1, 0.5) == "STOP"
    assert stops == [Stop(trial="t002", epoch=1, scheduler="asha")]
    assert decision(scheduler, "t001", 1, 0.9) == "CONTINUE"


def test_a_trials_bracket_depends_on_the_seed_alone_and_the_process_keeps_its_own_random_numbers() -> None:
    names = [f"t{number:03}" for number in range(20)]

    def brackets(order: list[str], seed: int) -> list[int]:
        settings = search_settings({"name": "asha", "brackets": 2}, seed=seed)
        scheduler = make_scheduler(settings, Space.of(settings.space), epochs=9, metric=METRIC, mode="max")
        for name in order:
            scheduler.on_trial_add(None, SimpleNamespace(config={"trial": name}))
        inner = scheduler._inner
        return [inner._brackets.index(inner._trial_info[name]) for name in names]

    np.random.seed(1)
    found = brackets(names, 0)
    assert np.random.rand() == np.random.RandomState(1).rand()
    assert set(found) == {0, 1}
    assert brackets(names[::-1], 0) == found
    assert brackets(names, 1) != found


def test_a_trial_may_have_been_stopped_before_the_time_of_its_evaluation() -> None:
    """Ray Tune asks the scheduler before it passes the evaluation on to be recorded, microseconds later."""
    history = SearchHistory()
    history.extend([TrialAdded(trial="t001", values={}), report("t001", 1, 0.9, 2.0)])
    history.extend([TrialEnded(trial="t001", status="stopped", time=1.9)])
    scheduler, _ = continued(history)
    assert decision(scheduler, "t002", 1, 0.5) == "STOP"
