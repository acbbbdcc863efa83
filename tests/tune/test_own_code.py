"""Searches with code of the user's own, by real drivers: what they are told when it is wrong, and a trial that goes on by itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from observability.runlog import RunEnded, read_all, select
from tests.distribution import RAY
from tests.training.launch.driver import Driver
from tests.tune.search_driver import run_search, search_of
from training.code.kept import current_identity
from training.errors import ExitStatus
from tune.history import SearchHistory

pytestmark = [pytest.mark.extended, pytest.mark.xdist_group(RAY)]

OBJECTIVE = """
from torch.nn.functional import cross_entropy

from observability.objective_metrics import Metric
from training.objectives.objective import Objective


class Own(Objective):
    sums = ("loss", "correct")
    metrics = (Metric(name="loss"), Metric(name="top1", higher_is_better=True))

    def measure(self, outputs, targets):
        return cross_entropy(outputs, targets, reduction="sum"), (outputs.argmax(1) == targets).sum()

    def report(self, means):
        return {"loss": means["loss"], "top1": means["correct"]}

    def __init__(self, spec):
        pass
"""


def test_a_metric_that_no_trial_reports_ends_the_search_at_the_first_evaluation(tmp_path: Path) -> None:
    """All other trials would fail in the same way."""
    settings = search_of(
        epochs=3,
        shared={"objective": {"name": "own:Own"}},
        algorithm="random",
        trials=5,
        concurrency=1,
        objectives={"validation_top": "max"},
    )
    code = tmp_path / "own"
    code.mkdir()
    (code / "own.py").write_text(OBJECTIVE, encoding="utf-8")
    ended = run_search(tmp_path, settings, code=code, status=ExitStatus.FAILED)
    history = SearchHistory.read(tmp_path / "s")
    assert [(trial.id, trial.status) for trial in history.trials.values()] == [("t001", "failed")]
    assert history.ended is not None
    assert history.ended.reason.startswith("search.objectives.validation_top: the trials report no such metric")
    assert "parameters, seconds, validation_loss, validation_top1" in history.ended.reason
    assert "did you mean validation_top1?" in history.ended.reason
    assert history.ended.reason in ended.out


MODEL = """
from torch import nn


def make(spec, width: int = 8) -> nn.Module:
    if width > 16:
        raise ValueError("too wide")
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))
"""


def test_a_trial_goes_on_by_itself_with_the_code_that_it_was_trained_with(tmp_path: Path) -> None:
    """One that was interrupted counts in its search afterwards; one that its code failed is resumed with corrected code."""
    settings = search_of(
        space={"model.options.width": {"choice": [8, 32]}},
        epochs=3,
        shared={"model": {"name": "own:make"}, "loop": {"epochs": 3}},
        algorithm="grid",
        concurrency=1,
        objectives={"validation_loss": "min"},
        stop={"gpu_hours": 1e-9, "failures": 1},
    )
    code = tmp_path / "mine"
    code.mkdir()
    (code / "own.py").write_text(MODEL, encoding="utf-8")
    search = tmp_path / "s"
    run_search(tmp_path, settings, code=code)
    first = search / "trials" / "t001"
    assert SearchHistory.read(search).trials["t001"].ended is None
    shutil.rmtree(search / "code")  # the trial has what it needs
    with Driver("resume", str(first), run=first) as alone:
        ended = alone.end()
    assert ended.status == ExitStatus.DONE, ended.out + ended.err
    weights = select(read_all(first), RunEnded)[-1].weights_sha256
    run_search(tmp_path, settings, "search.stop.gpu_hours=1", code=code, status=ExitStatus.FAILED)
    trials = SearchHistory.read(search).trials
    assert {name: trial.status for name, trial in trials.items()} == {"t001": "done", "t002": "failed"}
    assert [report.epoch for report in trials["t001"].reports] == [1, 2, 3]
    assert trials["t001"].ended.weights_sha256 == weights  # type: ignore[union-attr]
    second = search / "trials" / "t002"
    message = trials["t002"].ended.message  # type: ignore[union-attr]
    assert f"make tune NAME={search} CODE=folder goes on with corrected code and the other trials" in message
    assert f"make resume NAME={second} CODE=folder resumes this one by itself" in message
    (code / "own.py").write_text(MODEL.replace("width > 16", "width > 64"), encoding="utf-8")
    with Driver("resume", str(second), "--code", str(code), run=second) as alone:
        ended = alone.end()
    assert ended.status == ExitStatus.DONE, ended.out + ended.err
    assert current_identity(second) != current_identity(first)
