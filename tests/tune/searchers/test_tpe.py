"""Optuna's estimator behind our own interface."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tune.spaces import space_of, trial_of
from training.config.schema import OptionValue
from tune.events import SearchLogWriter, TrialAdded, TrialStatus
from tune.history import SearchHistory, TrialHistory
from tune.searchers.tpe import TpeSearcher
from tune.space.space import Space

LOSS = {"validation_loss": "min"}
AXES: dict[str, dict[str, object]] = {
    "rate": {"log_uniform": [1e-5, 1.0]},
    "decay": {"uniform": [0, 0.3], "step": 0.1},
    "width": {"integer": [8, 60], "step": 8},
    "depth": {"integer": [1, 64], "log": True},
    "name": {"choice": ["sgd", "adam"]},
    "hidden": {"choice": [[8], [8, 16], None]},
    "momentum": {"uniform": [0.5, 0.9], "when": {"name": "sgd"}},
    "fixed": {"value": 3},
}

Values = Mapping[str, OptionValue]


def number(value: OptionValue) -> float:
    assert isinstance(value, int | float)
    return float(value)


def distance(values: Values) -> float:
    """A loss whose minimum is rate = 0.01, width = 48 and adam."""
    loss = (math.log10(number(values["rate"])) + 2) ** 2 + (number(values["width"]) / 48 - 1) ** 2
    return loss + (0.0 if values["name"] == "adam" else 0.5)


def run(searcher: TpeSearcher, count: int, loss: Callable[[Values], float]) -> list[TrialHistory]:
    """A search of trials one after the other."""
    trials: list[TrialHistory] = []
    while len(trials) < count and (values := searcher.suggest(trials)) is not None:
        trials.append(trial_of(len(trials), values, loss(values)))
    return trials


def searcher_of(space: Space, *, seed: int = 0, objectives: Mapping[str, str] = LOSS) -> TpeSearcher:
    return TpeSearcher(space, objectives, seed=seed)


def test_suggestions_hold_in_the_space_and_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    space = space_of(AXES)
    trials = run(searcher_of(space), 30, distance)
    assert [trial.values for trial in trials if not space.holds(trial.values)] == []
    assert {trial.values["decay"] for trial in trials} <= {0.0, 0.1, 0.2, 0.3}, "no digits of binary fractions"
    assert capfd.readouterr() == ("", "")


def test_a_continued_search_suggests_what_an_uninterrupted_one_would() -> None:
    space = space_of(AXES)
    whole = run(searcher_of(space, seed=7), 25, distance)
    for begun in (0, 1, 9, 14, 24):
        assert searcher_of(space, seed=7).suggest(whole[:begun]) == whole[begun].values
    assert searcher_of(space, seed=8).suggest(whole[:24]) != whole[24].values


def test_a_search_read_back_from_its_log_continues_as_it_would_have(tmp_path: Path) -> None:
    space = space_of(AXES)
    whole = run(searcher_of(space, seed=7), 16, distance)
    log = SearchLogWriter(tmp_path)
    for trial in whole[:15]:
        assert trial.ended is not None
        log.write(TrialAdded(trial=trial.id, values=dict(trial.values)), *trial.reports, trial.ended)
    log.close()
    recorded = list(SearchHistory.read(tmp_path).trials.values())
    assert all(space.holds(trial.values) for trial in recorded)
    assert searcher_of(space, seed=7).suggest(recorded) == whole[15].values


def test_trials_that_run_count_and_so_does_their_order() -> None:
    space = space_of({"rate": {"uniform": [0, 1]}})
    ended = run(searcher_of(space), 12, lambda values: abs(number(values["rate"]) - 0.5))
    suggested = searcher_of(space).suggest(ended)
    assert suggested is not None
    beside = searcher_of(space).suggest([*ended, trial_of(12, suggested, status=None)])
    assert beside is not None
    assert beside != suggested


def test_optuna_gets_positions_of_choices_no_constants_and_the_values_that_a_clone_has_now() -> None:
    space = space_of(AXES)
    trial = run(searcher_of(space), 1, distance)[0]
    frozen = searcher_of(space)._frozen(trial)
    assert frozen.params.keys() == frozen.distributions.keys() == trial.values.keys() - {"fixed"}
    choices = searcher_of(space_of({"hidden": {"choice": [[8], None, True, 1]}}))
    values: list[OptionValue] = [[8], None, True, 1]
    of_choices = [choices._frozen(trial_of(0, {"hidden": value}, 1.0)).params["hidden"] for value in values]
    assert of_choices == [0, 1, 2, 3]
    clone = trial_of(0, {"rate": 0.2}, 0.5)
    clone.values = {"rate": 0.7}
    assert searcher_of(space_of({"rate": {"uniform": [0, 1]}}))._frozen(clone).params == {"rate": 0.7}


@pytest.mark.parametrize(
    ("status", "losses", "state", "result"),
    [
        ("done", (0.5, 0.3, 0.4), optuna.trial.TrialState.COMPLETE, ([0.3], {})),
        ("stopped", (0.5, 0.3, 0.4), optuna.trial.TrialState.PRUNED, (None, {3: 0.3})),
        ("stopped", (math.nan,), optuna.trial.TrialState.RUNNING, (None, {})),
        ("done", (), optuna.trial.TrialState.RUNNING, (None, {})),
        ("failed", (0.5,), optuna.trial.TrialState.RUNNING, (None, {})),
        (None, (0.5,), optuna.trial.TrialState.RUNNING, (None, {})),
    ],
)
def test_how_a_trial_ended_is_told(
    status: TrialStatus | None,
    losses: tuple[float, ...],
    state: optuna.trial.TrialState,
    result: tuple[list[float] | None, dict[int, float]],
) -> None:
    space = space_of({"rate": {"uniform": [0, 1]}})
    frozen = searcher_of(space)._frozen(trial_of(0, {"rate": 0.5}, *losses, status=status))
    assert frozen.state == state
    assert (frozen.values if state == optuna.trial.TrialState.COMPLETE else None, frozen.intermediate_values) == result


def suggested(searcher: TpeSearcher, count: int, trial_at: Callable[[int, float], TrialHistory]) -> list[TrialHistory]:
    """Trials one after the other; `trial_at` makes one of its number and its rate."""
    trials: list[TrialHistory] = []
    for turn in range(count):
        values = searcher.suggest(trials)
        assert values is not None
        trials.append(trial_at(turn, number(values["rate"])))
    return trials


def test_it_maximizes() -> None:
    searcher = searcher_of(space_of({"rate": {"uniform": [0, 1]}}), seed=1, objectives={"validation_accuracy": "max"})

    def trial_at(turn: int, rate: float) -> TrialHistory:
        return trial_of(turn, {"rate": rate}, -abs(rate - 0.8), metric="validation_accuracy")

    errors = [abs(number(trial.values["rate"]) - 0.8) for trial in suggested(searcher, 30, trial_at)]
    assert sum(errors[-10:]) < sum(errors[:10]) / 2


def test_values_at_which_trials_fail_are_avoided() -> None:
    def trial_at(turn: int, rate: float) -> TrialHistory:
        return trial_of(turn, {"rate": rate}, abs(rate - 0.4), status="failed" if rate > 0.5 else "done")

    trials = suggested(searcher_of(space_of({"rate": {"uniform": [0, 1]}})), 40, trial_at)
    failed = [trial.status == "failed" for trial in trials]
    assert sum(failed[20:]) < sum(failed[:20])


def test_several_objectives_are_weighed_and_trials_that_were_stopped_count() -> None:
    objectives = {"validation_loss": "min", "parameters": "min"}
    searcher = searcher_of(space_of({"rate": {"uniform": [0, 1]}}), objectives=objectives)

    def trial_at(turn: int, rate: float) -> TrialHistory:
        status: TrialStatus = "failed" if turn == 3 else "stopped" if turn % 2 else "done"
        return trial_of(turn, {"rate": rate}, (rate - 0.2) ** 2, status=status, parameters=(rate - 0.4) ** 2)

    trials = suggested(searcher, 40, trial_at)
    # Between the two minima no objective improves unless the other gets worse. A random searcher would be there 6 times.
    assert sum(0.15 < number(trial.values["rate"]) < 0.45 for trial in trials[-20:]) > 9
    frozen = searcher._frozen(trial_of(0, {"rate": 0.2}, 0.9, 0.5, status="stopped", parameters=3.0))
    assert (frozen.state, frozen.values) == (optuna.trial.TrialState.COMPLETE, [0.5, 3.0])


def test_trials_of_a_space_before_it_was_changed_are_left_out() -> None:
    before = space_of({"rate": {"uniform": [0, 1]}, "name": {"choice": ["a", "b"]}})
    trials = run(searcher_of(before), 12, lambda values: number(values["rate"]))
    after = space_of({"rate": {"uniform": [0.5, 2]}, "name": {"choice": ["b", "c"]}})
    suggested = searcher_of(after).suggest(trials)
    assert suggested is not None
    assert after.holds(suggested)


def test_a_small_space_is_searched_without_repeats_until_it_is_exhausted() -> None:
    space = space_of({"name": {"choice": ["a", "b", "c"]}, "width": {"integer": [1, 4]}})
    trials = run(searcher_of(space), 99, lambda values: number(values["width"]))
    assert len({str(trial.values) for trial in trials}) == len(trials) == 12


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    losses=st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=11, max_size=14),
)
def test_no_result_breaks_it(seed: int, losses: list[float]) -> None:
    space = space_of({"rate": {"log_uniform": [1e-3, 1]}, "name": {"choice": ["a", "b"]}})
    searcher = searcher_of(space, seed=seed)
    trials: list[TrialHistory] = []
    for turn, loss in enumerate(losses):
        values = searcher.suggest(trials)
        assert values is not None
        assert space.holds(values)
        trials.append(trial_of(turn, values, loss, status="stopped" if turn % 3 else "done"))
    assert searcher.suggest(trials) is not None
