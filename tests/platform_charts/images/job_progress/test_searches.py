"""Progress and remaining time of a search, from samples of its driver's metrics and its trials'."""

from __future__ import annotations

import math

from infra.spec.manifest import Manifest
from platform_charts.images.job_progress.figures import Progressing, Run, newest_runs
from platform_charts.images.job_progress.searches import (
    BEST,
    LEFT,
    NEWEST,
    PLANNED,
    TRIALS,
    Search,
    Series,
    is_search,
    search_of,
    without_running,
)
from platform_charts.jobs import rayjob
from tests.platform_charts.images.job_progress.test_figures import CREATED, KEY, gauges, job, series, texts

NOW = CREATED.timestamp() + 3600


def search(**changed: float) -> list[Series]:
    """The series of a driver, with some values or without those that are None."""
    values = {"planned": 16.0, "running": 4.0, "done": 2.0, "stopped": 6.0, "failed": 1.0, "best": 0.975, "left": 11_000.0,
              "newest": NOW, **changed}  # fmt: skip
    return [
        series("ray_rtp_search_planned_trials", values["planned"], pod="head"),
        *(
            series("ray_rtp_search_trials", values[status], pod="head", status=status)
            for status in ("running", "done", "stopped", "failed")
        ),
        series("ray_rtp_search_best", values["best"], pod="head", metric="validation_accuracy"),
        series("ray_rtp_search_time_left_seconds", values["left"], pod="head"),
        series("ray_rtp_search_last_evaluation_timestamp_seconds", values["newest"], pod="head"),
    ]


def found(**changed: float) -> Search:
    [one] = newest_runs(search(**changed), slopes=[]).values()
    assert isinstance(one, Search)
    return one


def search_job(deployment: str = "Running", *, progress: str | None = None) -> Manifest:
    made = job(deployment, progress=progress)
    made["metadata"]["labels"] = {"ray-train-platform/kind": "search"}
    return made


SHOWN = "9/16 trials, 4 running, 1 failed, validation accuracy 0.9750"


def test_a_running_search_has_its_trials_best_result_and_time_left() -> None:
    assert texts(search_job(), found()) == (SHOWN, "3h 15m")
    none = {"running": 0, "done": 0, "stopped": 0, "failed": 0, "best": math.nan}
    assert found(**none).progress() == "0/16 trials, 0 running"
    assert found(failed=0, best=1.5e-7).progress() == "8/16 trials, 4 running, validation accuracy 1.5e-07"
    assert found(best=12345.678).progress() == "9/16 trials, 4 running, 1 failed, validation accuracy 1.235e+04"


def test_what_is_no_estimate_and_no_progress_is_ignored() -> None:
    for left in (math.nan, math.inf, 0.0, -1.0):
        assert texts(search_job(), found(left=left)) == (SHOWN, None), left
    for changed in ({"planned": math.nan}, {"running": math.inf}, {"done": -1.0}):
        assert texts(search_job(progress=SHOWN), found(**changed)) == (SHOWN, None), changed


def test_a_new_search_has_no_result_and_no_estimate() -> None:
    """Ray exports no series whose value is NaN."""
    known = [one for one in search() if one[0]["__name__"] not in {BEST, LEFT}]
    assert texts(search_job(), search_of(known)) == ("9/16 trials, 4 running, 1 failed", None)


def test_a_driver_whose_series_are_incomplete_is_ignored() -> None:
    for missing in (PLANNED, TRIALS, NEWEST):
        assert search_of(one for one in search() if one[0]["__name__"] != missing) is None, missing


def test_the_search_counts_and_not_its_trials() -> None:
    """The trials' ranks have newer steps, in other processes."""
    trials = [
        *gauges(step=70, newest=NOW + 60, pod="w-1", run="t001"),
        *gauges(step=90, newest=NOW + 90, pod="w-2", run="t002"),
    ]
    for one in ([*search(), *trials], [*trials, *search()]):
        assert newest_runs(one, slopes=[]) == {KEY: found()}


def test_the_driver_with_the_newest_evaluation_counts() -> None:
    """After a restart on another head, the series of the former driver stay for a while."""
    former = [({**labels, "pod": "head-0"}, value) for labels, value in search(newest=NOW - 9, done=1.0)]
    assert newest_runs([*search(), *former], slopes=[]) == {KEY: found()}


def test_the_steps_of_a_trial_are_never_the_progress_of_a_search() -> None:
    trial: Progressing = Run(step=70, planned_steps=100, newest=NOW, steps_per_second=1.0)
    assert texts(search_job(progress=SHOWN), trial) == (SHOWN, None)
    assert texts(job(), trial)[0] == "70/100 (70 %)"


def test_a_search_that_does_not_run_has_no_running_trials() -> None:
    expected = ("9/16 trials, 1 failed, validation accuracy 0.9750", None)
    for deployment in ("Suspended", "Retrying", "Complete", "Failed"):
        assert texts(search_job(deployment, progress=SHOWN), None) == expected, deployment
        assert texts(search_job(deployment, progress=SHOWN), None, is_known=False) == expected
        assert texts(search_job(deployment), found()) == expected
    assert without_running("1,240/5,000 (24 %)") == "1,240/5,000 (24 %)", "a run has none"
    assert without_running(None) is None


def test_both_halves_agree_which_jobs_are_searches() -> None:
    assert is_search(search_job())
    assert rayjob.is_search(search_job())
    assert not is_search({"metadata": {}})
    assert not is_search({"metadata": {"labels": None}})
