"""Progress and remaining time, from samples of a run's metrics."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.spec.manifest import Manifest
from platform_charts.images.job_progress.figures import Progressing, Run, figures, newest_runs, progress, time_left
from tests.training.cluster.samples import ray_job

CREATED = datetime(2026, 11, 22, 8, 0, tzinfo=UTC)
KEY = ("research", "digits")


def run(step: float = 1240, planned: float = 5000, *, slope: float | None = 0.5, minutes: float = 60) -> Run:
    """A run whose newest step was some minutes after the creation of its job."""
    newest = (CREATED + timedelta(minutes=minutes)).timestamp()
    return Run(step=step, planned_steps=planned, newest=newest, steps_per_second=slope)


def job(deployment: str = "Running", *, progress: str | None = None, left: str | None = None) -> Manifest:
    made = ray_job(deployment, "RUNNING")
    made["metadata"]["creationTimestamp"] = f"{CREATED:%Y-%m-%dT%H:%M:%SZ}"
    return made | {"before": {"progress": progress, "time left": left}}


def texts(made: Manifest, found: Progressing | None, *, is_known: bool = True) -> tuple[str | None, str | None]:
    shown = figures(made, found, before=made["before"], is_known=is_known)
    return shown["progress"], shown["time left"]


@pytest.mark.parametrize(
    ("step", "planned", "expected"),
    [
        (0, 5000, "0/5,000 (0 %)"),
        (1240, 5000, "1,240/5,000 (24 %)"),
        (4999, 5000, "4,999/5,000 (99 %)"),
        (5000, 5000, "5,000/5,000 (100 %)"),
        (2_000_000, 3_000_000, "2,000,000/3,000,000 (66 %)"),
    ],
)
def test_the_percentage_is_100_only_at_the_end(step: int, planned: int, expected: str) -> None:
    assert progress(step, planned) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (1, "1m"),
        (61, "2m"),
        (600, "10m"),
        (601, "15m"),
        (3600, "1h"),
        (3601, "1h 15m"),
        (11_700, "3h 15m"),
        (12 * 3600 + 1, "13h"),
        (47 * 3600, "1d 23h"),
        (48 * 3600 + 1, "2d 6h"),
        (30 * 86_400, "30d"),
    ],
)
def test_the_remaining_time_is_coarse(seconds: float, expected: str) -> None:
    assert time_left(seconds) == expected


@given(st.floats(min_value=1, max_value=1e7))
def test_the_remaining_time_is_never_too_short_and_at_most_a_quarter_too_long(seconds: float) -> None:
    units = {"d": 86_400, "h": 3600, "m": 60}
    shown = sum(int(part[:-1]) * units[part[-1]] for part in time_left(seconds).split())
    assert seconds <= shown <= max(seconds * 1.25, seconds + 60)


def test_a_steady_run_changes_its_remaining_time_seldom() -> None:
    """In 12 hours, at 1440 polls: 44 quarters of an hour, 10 times 5 minutes, 10 minutes."""
    assert len({time_left(seconds) for seconds in range(12 * 3600, 0, -30)}) == 64


def test_a_running_job_has_both() -> None:
    assert texts(job(), run()) == ("1,240/5,000 (24 %)", "2h 15m")


@pytest.mark.parametrize("slope", [None, 0.0, -0.3, 1e-9, float("nan"), float("inf")])
def test_without_a_pace_there_is_no_remaining_time(slope: float | None) -> None:
    assert texts(job(left="2h"), run(slope=slope)) == ("1,240/5,000 (24 %)", None)


def test_a_run_at_its_last_step_has_no_remaining_time() -> None:
    assert texts(job(left="1m"), run(step=5000)) == ("5,000/5,000 (100 %)", None)


@pytest.mark.parametrize(
    "deployment", ["Suspended", "Suspending", "Initializing", "Retrying", "Complete", "Failed", ""]
)
def test_a_job_that_does_not_run_keeps_its_progress_only(deployment: str) -> None:
    assert texts(job(deployment, progress="7/9 (77 %)", left="2h"), None) == ("7/9 (77 %)", None)


def test_a_job_that_has_just_stopped_has_no_remaining_time() -> None:
    assert texts(job("Suspending", left="2h"), run()) == ("1,240/5,000 (24 %)", None)


def test_the_last_step_of_a_finished_job_is_still_taken() -> None:
    assert texts(job("Complete", progress="4,990/5,000 (99 %)"), run(step=5000)) == ("5,000/5,000 (100 %)", None)


def test_a_restart_shows_the_step_that_it_resumed_from() -> None:
    assert texts(job(progress="1,300/5,000 (26 %)"), run(step=1200, slope=-0.1)) == ("1,200/5,000 (24 %)", None)


def test_series_of_an_earlier_job_of_the_name_are_ignored() -> None:
    assert texts(job("Initializing"), run(minutes=-5)) == (None, None)


def test_figures_stay_while_prometheus_is_silent_for_a_moment() -> None:
    assert texts(job(progress="7/9 (77 %)", left="2h"), None, is_known=False) == ("7/9 (77 %)", "2h")
    assert texts(job("Complete", progress="7/9 (77 %)", left="2h"), None, is_known=False) == ("7/9 (77 %)", None)


@pytest.mark.parametrize(
    ("step", "planned"), [(float("nan"), 5), (1, float("nan")), (1, 0), (float("inf"), 5), (-1, 5)]
)
def test_values_that_are_no_progress_are_ignored(step: float, planned: float) -> None:
    assert texts(job(progress="7/9 (77 %)"), run(step, planned)) == ("7/9 (77 %)", None)


def series(name: str, value: float, **labels: str) -> tuple[dict[str, str], float]:
    return {"__name__": name, "namespace": "research", "training_job": "digits", **labels}, value


def gauges(*, step: float, newest: float, **labels: str) -> list[tuple[dict[str, str], float]]:
    return [
        series("ray_rtp_train_step", step, **labels),
        series("ray_rtp_train_planned_steps", 100, **labels),
        series("ray_rtp_train_last_step_timestamp_seconds", newest, **labels),
    ]


def test_the_process_with_the_newest_step_wins() -> None:
    """After a restart on another node, the series of the former rank 0 stay for a while."""
    found = newest_runs(
        [*gauges(step=70, newest=1000, pod="w-1"), *gauges(step=60, newest=2000, pod="w-2")],
        slopes=[({"namespace": "research", "training_job": "digits", "pod": "w-1"}, 9.0)],
    )
    assert found == {KEY: Run(step=60, planned_steps=100, newest=2000, steps_per_second=None)}


def test_a_slope_belongs_to_the_series_with_the_same_labels() -> None:
    slope = {"namespace": "research", "training_job": "digits", "pod": "w-1"}, 0.25
    found = newest_runs(gauges(step=70, newest=1000, pod="w-1"), slopes=[slope])
    assert found == {KEY: Run(step=70, planned_steps=100, newest=1000, steps_per_second=0.25)}


def test_incomplete_and_foreign_series_are_ignored() -> None:
    assert newest_runs(gauges(step=1, newest=2)[:2], slopes=[]) == {}
    assert newest_runs([({"__name__": "ray_rtp_train_step"}, 1.0)], slopes=[]) == {}
    assert newest_runs(gauges(step=1, newest=float("nan")), slopes=[]) == {}
