"""The searcher that the settings name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tune.trials import space_of, trial_of
from tune.searchers.make import make_searcher
from tune.searchers.plain import GridSearcher, RandomSearcher
from tune.searchers.tpe import TpeSearcher
from tune.settings import SearchSettings

ROOT = Path(__file__).resolve().parents[3]
AXIS = {"optimizer.name": {"choice": ["sgd", "adam"]}}


@pytest.mark.parametrize(
    ("algorithm", "kind"), [("random", RandomSearcher), ("grid", GridSearcher), ("optuna", TpeSearcher)]
)
def test_each_algorithm_has_its_searcher(algorithm: str, kind: type) -> None:
    settings = SearchSettings.model_validate({"algorithm": algorithm, "space": AXIS})
    assert isinstance(make_searcher(settings, space_of(AXIS), {"validation_loss": "min"}), kind)


@pytest.mark.parametrize("algorithm", ["random", "optuna"])
@pytest.mark.parametrize(("scheduler", "repeats"), [("asha", False), ("pbt", True), ("pb2", True)])
def test_only_a_population_may_begin_with_equal_values(algorithm: str, scheduler: str, *, repeats: bool) -> None:
    settings = SearchSettings.model_validate({"algorithm": algorithm, "space": AXIS, "scheduler": {"name": scheduler}})
    searcher = make_searcher(settings, space_of(AXIS), {"validation_loss": "min"})
    tried = [trial_of(number, {"optimizer.name": name}, 0.5) for number, name in enumerate(("sgd", "adam"))]
    assert (searcher.suggest(tried) is not None) is repeats


def test_optuna_is_imported_only_for_its_own_searcher() -> None:
    program = "import sys, tune.searchers.make\nprint(sorted({'optuna', 'numpy', 'ray', 'torch'} & set(sys.modules)))\n"
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
