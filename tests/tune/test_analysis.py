"""A search in Python: data frames, plots, and refusals."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from tests.tune.sample_search import NAME, PBT, PBT_SPACE, SPACE, SampleSearch
from training.errors import CheckpointError, SettingsError
from tune.analysis import SearchAnalysis, open_search
from tune.folder import SearchFolder
from tune.report.plots import PLOTS


def opened(folder: Path, search: SampleSearch) -> SearchAnalysis:
    """A search from its folder."""
    return open_search(search.write(folder / NAME))


def test_every_trial_has_a_row_with_its_best_evaluation_and_its_values(tmp_path: Path) -> None:
    search = SampleSearch(trials=16, failing={"t004": "killed"}, stop={"dollars_per_worker_hour": 36.0})
    trials = opened(tmp_path, search).trials
    history = search.history
    assert list(trials.index[: len(history.ranked())]) == [trial.id for trial in history.ranked()]
    assert set(trials.index) == set(history.trials)
    for name, trial in history.trials.items():
        row = trials.loc[name]
        assert (row["status"], row["epochs"], row["seconds"]) == (trial.status, trial.epoch, trial.worker_seconds)
        assert row["dollars"] == pytest.approx(trial.worker_seconds / 100)
        assert row["validation_accuracy"] == trial.best("validation_accuracy", "max")
        best = next(report for report in trial.reports if report.epoch == row["best_epoch"])
        assert row["validation_loss"] == best.metrics["validation_loss"]
        for key in SPACE:
            assert row[key] == trial.values[key] if key in trial.values else math.isnan(row[key])
    assert trials.loc["t004", "message"] == "killed"
    assert set(trials.columns[-6:-1]) == set(SPACE)
    assert trials.columns[-1] == "message"


def test_of_several_objectives_the_newest_evaluation_counts_and_the_front_comes_first(tmp_path: Path) -> None:
    objectives = {"validation_accuracy": "max", "parameters": "min"}
    search = SampleSearch(trials=12, epochs=4, scheduler={"name": "none"}, objectives=objectives)
    trials = opened(tmp_path, search).trials
    assert set(trials["epoch"]) == {4}
    front = trials[["validation_accuracy", "parameters"]].iloc[0]
    others = trials[trials["validation_accuracy"] > front["validation_accuracy"]]
    assert others.empty, "the front begins with the best of the first objective"


def test_every_evaluation_and_every_exploitation_has_a_row(tmp_path: Path) -> None:
    search = SampleSearch(trials=8, epochs=12, scheduler=PBT, space=PBT_SPACE)
    found, trials = opened(tmp_path, search), search.history.trials
    curves = found.evaluations.groupby("trial")["validation_accuracy"]
    for name, trial in trials.items():
        assert list(curves.get_group(name)) == [report.metrics["validation_accuracy"] for report in trial.reports]
    exploits = found.exploits
    assert len(exploits) == sum(len(trial.exploits) for trial in trials.values()) > 2
    last = exploits.iloc[-1]
    assert trials[last["trial"]].exploits[-1].donor == last["donor"]
    assert dict(trials[last["trial"]].values) == {key: last[key] for key in PBT_SPACE}


def test_a_search_without_results_has_empty_frames_with_their_columns(tmp_path: Path) -> None:
    search = opened(tmp_path, SampleSearch(trials=4, until=0))
    assert {"status", "epochs", "seconds", *SPACE} <= set(search.trials.columns)
    assert search.evaluations.empty
    assert search.exploits.empty
    assert search.best is None
    assert "none yet" in repr(search)
    for read in (search.values, search.load_model, lambda: search.train_command):
        with pytest.raises(SettingsError, match="has no result yet"):
            read()


def test_a_search_that_runs_can_be_opened_again(tmp_path: Path) -> None:
    folder = SearchFolder(SampleSearch(trials=4, until=10).write(tmp_path / NAME))
    with folder.driving():
        search = open_search(NAME, root=tmp_path)
        assert search.status == "running"
    assert open_search(root=tmp_path).status == "killed"
    assert len(search.evaluations) == 10


def test_every_plot_is_a_drawing_in_real_colours_or_says_why_not(tmp_path: Path) -> None:
    search = opened(tmp_path, SampleSearch(trials=16))
    for key in PLOTS:
        html = search.plot(key)._repr_html_()
        used, defined = (set(re.findall(pattern, html)) for pattern in (r"var\((--[\w-]+)\)", r"(--[\w-]+): #"))
        assert used <= defined, key
        assert ("<svg" in html) is (key not in {"pareto", "lineage", "schedules"}), key
        assert ("does not apply to the search" in html) is ("<svg" not in html), key


def test_what_does_not_exist_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    search = opened(tmp_path, SampleSearch(trials=4))
    with pytest.raises(SettingsError, match="plot curve: no such plot") as refused:
        search.plot("curve")
    assert refused.value.remedy == "did you mean curves?"
    with pytest.raises(SettingsError, match="trial t01: no such trial"):
        search.values("t01")
    with pytest.raises(SettingsError, match="no such search under"):
        open_search("other", root=tmp_path)
    with pytest.raises(CheckpointError, match="trial t002 has no weights"):
        search.load_model("t002")
    assert search.importance == {}
    assert "needs at least 10 trials" in search.plot("importance").note
