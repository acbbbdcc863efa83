"""The numbers, tables and importances behind a search's report."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from ray.tune.schedulers.async_hyperband import _Bracket

from tests.tune.sample_search import PBT, PBT_SPACE, START, SampleSearch, history_of
from tune.events import SearchStarted, TrialAdded, TrialEnded, TrialReported
from tune.report.data import SearchData
from tune.report.facts import axis_text, best_rows, search_rows, trial_headings, trial_rows
from tune.report.importance import importances
from tune.report.schedule_plots import survival
from tune.space.axes import Axis, Choice, Condition, Constant, Continuous, Integers
from tune.texts import MetricTexts


def data_of(search: SampleSearch, *, is_running: bool = False) -> SearchData:
    """What the report of a search sees."""
    return SearchData(history=search.history, texts=MetricTexts(None), is_running=is_running)


@pytest.fixture(scope="module")
def population() -> SearchData:
    """A population of eight."""
    return data_of(SampleSearch(trials=8, epochs=20, scheduler=PBT, space=PBT_SPACE))


def test_improvements_end_with_the_best_value() -> None:
    data = data_of(SampleSearch(trials=16))
    found = data.improvements()
    values = [one.value for one in found]
    assert len(found) > 5
    assert values == sorted(set(values))
    assert found[-1].trial == data.ranked[0].id
    assert found[-1].value == data.ranked[0].best("validation_accuracy", "max")
    seconds = data_of(SampleSearch(trials=4, epochs=3, scheduler={"name": "none"}, objectives={"seconds": "min"}))
    assert seconds.improvements()[-1].value == min(trial.worker_seconds for trial in seconds.trials)


def test_a_failed_trial_improves_nothing_and_its_worker_seconds_count() -> None:
    best = data_of(SampleSearch(trials=4, epochs=9)).ranked[0].id
    data = data_of(SampleSearch(trials=4, epochs=9, failing={best: "killed"}))
    assert best not in {one.trial for one in data.improvements()}
    spent = [one.worker_seconds for one in data.moments]
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(data.history.worker_seconds)


def test_survival_counts_the_trials_of_each_epoch() -> None:
    data = data_of(SampleSearch(trials=16))
    survival = data.survival()
    assert len(survival) == 27
    assert survival[0] == 16
    assert survival == sorted(survival, reverse=True)
    assert sum(survival) == sum(trial.epoch for trial in data.trials)
    assert survival[-1] == sum(trial.status == "done" for trial in data.trials)
    hyperband = data_of(SampleSearch(trials=2, scheduler={"name": "hyperband"}, until=3))
    assert hyperband.rungs() == [], "only asha has rungs that all trials share"


def test_rungs_are_those_of_ray() -> None:
    for grace, factor, epochs in product((1, 2, 5), (2, 3, 4), (6, 10, 27, 50, 81)):
        scheduler = {"name": "asha", "grace_epochs": grace, "reduction_factor": factor}
        data = data_of(SampleSearch(trials=1, epochs=epochs, scheduler=scheduler, until=1))
        milestones = [epoch for epoch, _ in _Bracket(grace, epochs, factor, 0)._rungs]
        assert data.rungs() == sorted(epoch for epoch in milestones if epoch < epochs), (grace, factor, epochs)


def test_the_ancestry_covers_every_epoch_once(population: SearchData) -> None:
    for trial in population.trials:
        parts = population.ancestry(trial)
        assert parts[0][1] == 0
        assert parts[-1][0] == trial.id
        assert parts[-1][2] == trial.epoch == 20
        assert all(left[2] == right[1] for left, right in pairwise(parts))
    assert population.perturbed()[:2] == ["optimizer.learning_rate", "optimizer.weight_decay"]
    assert data_of(SampleSearch(trials=4)).perturbed() == []


def test_the_curve_of_a_clone_is_that_of_its_weights(population: SearchData) -> None:
    clone = next(trial for trial in population.trials if len(trial.schedule) > 1)
    stretch, end = clone.schedule[0], clone.schedule[1].epoch
    donor = population.history.trials[stretch.trial]
    curve = population.curve(clone)
    assert [point for point in curve if point[0] <= end] == [one for one in population.values(donor) if one[0] <= end]
    assert [epoch for epoch, _ in curve] == sorted({epoch for epoch, _ in curve})


def searched(objectives: Mapping[str, str], points: list[dict[str, float]]) -> SearchData:
    """A search whose trials have these results."""
    events: list[Any] = [SearchStarted(time=START, search="a", settings={}, shared={}, objectives=dict(objectives))]
    for index, point in enumerate(points):
        trial = f"t{index:03d}"
        events.append(TrialAdded(trial=trial, values={}))
        seconds = point.get("seconds", 1.0)
        events.append(TrialReported(trial=trial, epoch=1, step=1, metrics=point, worker_seconds=seconds))
        events.append(TrialEnded(trial=trial, status="done", worker_seconds=seconds))
    return SearchData(history=history_of(*events), texts=MetricTexts(None), is_running=False)


def test_the_front_has_every_trial_that_no_other_dominates() -> None:
    draw = random.Random(1)
    points = [{"validation_accuracy": draw.random(), "seconds": draw.uniform(1, 9)} for _ in range(40)]
    data = searched({"validation_accuracy": "max", "seconds": "min"}, points)
    front = {trial.id for trial in data.front()}
    for index, point in enumerate(points):
        beaten = any(
            other["validation_accuracy"] > point["validation_accuracy"] and other["seconds"] < point["seconds"]
            for other in points
        )
        assert (f"t{index:03d}" in front) is not beaten
    assert 2 <= len(front) < 40


def test_equal_trials_are_both_on_the_front_and_those_without_a_result_or_that_failed_are_not() -> None:
    objectives = {"validation_accuracy": "max", "parameters": "min"}
    point = {"validation_accuracy": 0.5, "parameters": 100.0}
    points = [point, point, {**point, "parameters": 101.0}, {"validation_accuracy": math.nan, "parameters": 1.0}]
    data = searched(objectives, points)
    assert [trial.id for trial in data.front()] == ["t000", "t001"]
    data.history.extend([TrialEnded(trial="t000", status="failed")])
    assert [trial.id for trial in data.front()] == ["t001"]


TRACE = "worker 1 ran out of memory\n  File 'forward.py', line 12"


def test_every_trial_has_a_row_the_best_first() -> None:
    search = SampleSearch(trials=16, failing={"t004": TRACE})
    rows = trial_rows(data_of(search))
    ranked = [trial.id for trial in search.history.ranked()]
    assert [row.cells[0] for row in rows][: len(ranked)] == ranked
    assert sorted(row.cells[0] for row in rows) == sorted(search.history.trials)
    assert {len(row.cells) for row in rows} == {len(trial_headings(data_of(search)))}
    [failed] = [row for row in rows if row.status == "failed"]
    assert failed.message.text == "worker 1 ran out of memory"
    assert failed.message.details == TRACE


def test_what_stopping_saved_is_told_of_the_trials_that_have_ended() -> None:
    for until, is_running in ((None, False), (40, True)):
        search = SampleSearch(trials=16, until=until)
        ended = [trial for trial in search.history.trials.values() if trial.ended]
        trained, whole = sum(trial.epoch for trial in ended), len(ended) * 27
        plot = survival(data_of(search, is_running=is_running))
        assert plot is not None
        assert f"{trained} of {whole} were trained: {1 - trained / whole:.1%}".replace("%", " %") in plot.note


def test_the_schedule_of_the_best_trial_is_listed() -> None:
    data = data_of(SampleSearch(trials=8, epochs=20, scheduler=PBT, space=PBT_SPACE))
    assert data.best is not None
    text = dict(best_rows(data))["optimizer.learning_rate"]
    assert re.match(r"[\d.]+ from epoch 1, [\d.]+ from epoch \d+", text)
    assert len(text.split(", ")) == len(data.best.schedule)
    fixed = data_of(SampleSearch(trials=4, epochs=3))
    assert fixed.best is not None
    assert dict(best_rows(fixed))["optimizer.learning_rate"] == repr(fixed.best.values["optimizer.learning_rate"])
    continued = SampleSearch(trials=4, until=5)
    continued.events.append(continued.events[0])
    assert dict(search_rows(data_of(continued), Path("x")))["continued"].startswith("1 time, the last at 2026-")


def test_an_axis_is_described() -> None:
    cases: list[tuple[Axis, str]] = [
        (Constant("one_cycle"), "always one_cycle"),
        (Choice((None, 0.5, True)), "one of none, 0.5, true"),
        (Integers(1, 64, is_log=True), "1 to 64, logarithmic, whole numbers"),
        (Integers(8, 64, step=8), "8 to 64, in steps of 8, whole numbers"),
        (Continuous(0, 0.1), "0 to 0.1"),
        (Continuous(1e-4, 0.1, is_log=True), "0.0001 to 0.1, logarithmic"),
        (Continuous(0, 1, when=(Condition("a", ("x", "y")),)), "0 to 1; if a is x or y"),
    ]
    assert [axis_text(axis) for axis, _ in cases] == [text for _, text in cases]


FULL = {"name": "none"}


def test_the_learning_rate_decides_the_toy_curve() -> None:
    found = importances(data_of(SampleSearch(trials=60, epochs=9, scheduler=FULL))).by_setting
    assert next(iter(found)) == "optimizer.learning_rate"
    assert found["optimizer.learning_rate"] > 0.5
    assert "optimizer.momentum" in found, "a conditional setting is rated, too"
    assert sum(found.values()) == pytest.approx(1)


def test_the_note_says_which_trials_were_compared_and_optuna_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    note = importances(data_of(SampleSearch(trials=16))).note
    assert "the best 5 of 16 trials" in note
    assert "validation accuracy, also of those that were stopped early" in note
    assert capfd.readouterr() == ("", "")


def test_trials_that_cannot_be_compared_have_no_importance() -> None:
    few = SampleSearch(trials=9, epochs=9)
    population = SampleSearch(trials=12, epochs=4, scheduler=PBT, space=PBT_SPACE)
    space = {"optimizer.learning_rate": {"choice": [0.001, 0.01]}}
    equal = SampleSearch(trials=12, epochs=1, scheduler=FULL, space=space, objectives={"parameters": "min"})
    for search, why in (
        (few, "it needs at least 10 trials that ended with a result, and there are 9."),
        (population, "change while it trains"),
        (equal, "all equal"),
    ):
        found = importances(data_of(search))
        assert found.by_setting == {}
        assert why in found.note
