"""The searcher that the settings name."""

from __future__ import annotations

from tests.tune.trials import space_of, trial_of
from tune.searchers.make import make_searcher
from tune.searchers.plain import GridSearcher, RandomSearcher
from tune.searchers.tpe import TpeSearcher
from tune.settings import SearchSettings

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
