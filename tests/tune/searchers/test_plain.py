"""Random and grid search, and the searcher that the settings name."""

from __future__ import annotations

from tests.tune.spaces import Axes, space_of, trial_of
from tune.history import TrialHistory
from tune.searchers.make import make_searcher
from tune.searchers.plain import GridSearcher, RandomSearcher
from tune.searchers.tpe import TpeSearcher
from tune.settings import SearchSettings

AXES: Axes = {
    "rate": {"log_uniform": [1e-4, 1e-1]},
    "name": {"choice": ["sgd", "adam"]},
    "momentum": {"uniform": [0.5, 0.9], "when": {"name": "sgd"}},
    "fixed": {"value": 3},
}

SMALL: Axes = {"name": {"choice": ["sgd", "adam"]}, "width": {"choice": [8, 16], "when": {"name": "sgd"}}}


def run(searcher: RandomSearcher | GridSearcher, count: int) -> list[TrialHistory]:
    """The trials of a search whose results are all equal."""
    trials: list[TrialHistory] = []
    while len(trials) < count and (values := searcher.suggest(trials)) is not None:
        trials.append(trial_of(len(trials), values, 1.0))
    return trials


def test_random_values_hold_in_the_space_and_differ() -> None:
    space = space_of(AXES)
    values = [trial.values for trial in run(RandomSearcher(space, seed=0), 20)]
    assert all(space.holds(one) for one in values)
    assert len({str(one) for one in values}) == 20


def test_a_random_trial_depends_on_the_seed_and_its_number_alone() -> None:
    space = space_of(AXES)
    trials = run(RandomSearcher(space, seed=3), 6)
    for number in (0, 3, 5):
        unfinished = [trial_of(other, trial.values, status=None) for other, trial in enumerate(trials[:number])]
        assert RandomSearcher(space, seed=3).suggest(unfinished) == trials[number].values
    assert RandomSearcher(space, seed=4).suggest([]) != trials[0].values


def test_random_search_ends_when_every_combination_is_tried() -> None:
    found = [trial.values for trial in run(RandomSearcher(space_of(SMALL), seed=0), 99)]
    assert sorted(map(str, found)) == sorted(
        map(str, [{"name": "sgd", "width": 8}, {"name": "sgd", "width": 16}, {"name": "adam"}])
    )


def test_a_grid_gives_every_combination_once_and_then_ends() -> None:
    searcher = GridSearcher(space_of(SMALL))
    assert [trial.values for trial in run(searcher, 99)] == [
        {"name": "sgd", "width": 8},
        {"name": "sgd", "width": 16},
        {"name": "adam"},
    ]
    assert searcher.suggest(run(searcher, 99)) is None
    equal = GridSearcher(space_of({"flag": {"choice": [True, 1]}}))
    assert [trial.values for trial in run(equal, 9)] == [{"flag": True}, {"flag": 1}], "different values"


def test_a_grid_goes_on_after_trials_that_have_not_ended_or_have_failed() -> None:
    searcher = GridSearcher(space_of(SMALL))
    trials = [
        trial_of(0, {"name": "sgd", "width": 8}, status=None),
        trial_of(1, {"name": "sgd", "width": 16}, status="failed"),
    ]
    assert searcher.suggest(trials) == {"name": "adam"}


AXIS = {"optimizer.name": {"choice": ["sgd", "adam"]}}


def test_each_algorithm_has_its_searcher() -> None:
    for algorithm, kind in {"random": RandomSearcher, "grid": GridSearcher, "optuna": TpeSearcher}.items():
        settings = SearchSettings.model_validate({"algorithm": algorithm, "space": AXIS})
        assert isinstance(make_searcher(settings, space_of(AXIS), {"validation_loss": "min"}), kind)


def test_only_a_population_may_begin_with_equal_values() -> None:
    tried = [trial_of(number, {"optimizer.name": name}, 0.5) for number, name in enumerate(("sgd", "adam"))]
    for algorithm in ("random", "optuna"):
        for scheduler, repeats in (("asha", False), ("pbt", True), ("pb2", True)):
            section = {"algorithm": algorithm, "space": AXIS, "scheduler": {"name": scheduler}}
            searcher = make_searcher(SearchSettings.model_validate(section), space_of(AXIS), {"validation_loss": "min"})
            assert (searcher.suggest(tried) is not None) is repeats, (algorithm, scheduler)
