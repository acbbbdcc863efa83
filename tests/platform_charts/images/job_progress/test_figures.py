"""Progress and remaining time, from samples of a run's metrics."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from infra.spec.manifest import Manifest
from platform_charts.images.job_progress.figures import Progressing, Run, figures, newest_runs, progress, time_left
from platform_charts.images.job_progress.prometheus import Prometheus
from tests.engines.ports import free_port
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


def test_the_percentage_is_100_only_at_the_end() -> None:
    for step, planned, expected in (
        (0, 5000, "0/5,000 (0 %)"),
        (1240, 5000, "1,240/5,000 (24 %)"),
        (4999, 5000, "4,999/5,000 (99 %)"),
        (5000, 5000, "5,000/5,000 (100 %)"),
        (2_000_000, 3_000_000, "2,000,000/3,000,000 (66 %)"),
    ):
        assert progress(step, planned) == expected


def test_the_remaining_time_is_coarse() -> None:
    hour = 3600
    short = {1: "1m", 61: "2m", 600: "10m", 601: "15m", hour: "1h", hour + 1: "1h 15m", 11_700: "3h 15m"}
    long = {12 * hour + 1: "13h", 47 * hour: "1d 23h", 48 * hour + 1: "2d 6h", 30 * 24 * hour: "30d"}
    assert {seconds: time_left(seconds) for seconds in short | long} == short | long


@given(st.floats(min_value=1, max_value=1e7))
def test_the_remaining_time_is_never_too_short_and_at_most_a_quarter_too_long(seconds: float) -> None:
    units = {"d": 86_400, "h": 3600, "m": 60}
    shown = sum(int(part[:-1]) * units[part[-1]] for part in time_left(seconds).split())
    assert seconds <= shown <= max(seconds * 1.25, seconds + 60)


def test_a_steady_run_changes_its_remaining_time_seldom() -> None:
    """In 12 hours, at 1440 polls: 44 quarters of an hour, 10 times 5 minutes, 10 minutes."""
    assert len({time_left(seconds) for seconds in range(12 * 3600, 0, -30)}) == 64


def test_a_running_job_has_both_and_without_a_pace_or_at_its_last_step_no_remaining_time() -> None:
    assert texts(job(), run()) == ("1,240/5,000 (24 %)", "2h 15m")
    for slope in (None, 0.0, -0.3, 1e-9, float("nan"), float("inf")):
        assert texts(job(left="2h"), run(slope=slope)) == ("1,240/5,000 (24 %)", None), slope
    assert texts(job(left="1m"), run(step=5000)) == ("5,000/5,000 (100 %)", None)
    restarted = texts(job(progress="1,300/5,000 (26 %)"), run(step=1200, slope=-0.1))
    assert restarted == ("1,200/5,000 (24 %)", None), "the step that it resumed from"


def test_a_job_that_does_not_run_keeps_its_progress_only() -> None:
    for deployment in ("Suspended", "Suspending", "Initializing", "Retrying", "Complete", "Failed", ""):
        assert texts(job(deployment, progress="7/9 (77 %)", left="2h"), None) == ("7/9 (77 %)", None), deployment
    assert texts(job("Suspending", left="2h"), run()) == ("1,240/5,000 (24 %)", None)
    finished = texts(job("Complete", progress="4,990/5,000 (99 %)"), run(step=5000))
    assert finished == ("5,000/5,000 (100 %)", None), "its last step is still taken"
    assert texts(job("Initializing"), run(minutes=-5)) == (None, None), "the series of an earlier job of the name"


def test_figures_stay_while_prometheus_is_silent_for_a_moment() -> None:
    assert texts(job(progress="7/9 (77 %)", left="2h"), None, is_known=False) == ("7/9 (77 %)", "2h")
    assert texts(job("Complete", progress="7/9 (77 %)", left="2h"), None, is_known=False) == ("7/9 (77 %)", None)


def test_values_that_are_no_progress_are_ignored() -> None:
    nan, inf = float("nan"), float("inf")
    for step, planned in ((nan, 5), (1, nan), (1, 0), (inf, 5), (-1, 5)):
        assert texts(job(progress="7/9 (77 %)"), run(step, planned)) == ("7/9 (77 %)", None), (step, planned)


def series(name: str, value: float, **labels: str) -> tuple[dict[str, str], float]:
    return {"__name__": name, "namespace": "research", "training_job": "digits", **labels}, value


def gauges(*, step: float, newest: float, **labels: str) -> list[tuple[dict[str, str], float]]:
    return [
        series("ray_rtp_train_step", step, **labels),
        series("ray_rtp_train_planned_steps", 100, **labels),
        series("ray_rtp_train_last_step_timestamp_seconds", newest, **labels),
    ]


def test_the_process_with_the_newest_step_wins_and_has_the_slope_of_its_own_series() -> None:
    """After a restart on another node, the series of the former rank 0 stay for a while."""
    both = [*gauges(step=70, newest=1000, pod="w-1"), *gauges(step=60, newest=2000, pod="w-2")]
    for pod, slope in (("w-1", None), ("w-2", 0.25)):
        slopes = [({"namespace": "research", "training_job": "digits", "pod": pod}, 0.25)]
        expected = Run(step=60, planned_steps=100, newest=2000, steps_per_second=slope)
        assert newest_runs(both, slopes=slopes) == {KEY: expected}


def test_incomplete_and_foreign_series_are_ignored() -> None:
    assert newest_runs(gauges(step=1, newest=2)[:2], slopes=[]) == {}
    assert newest_runs([({"__name__": "ray_rtp_train_step"}, 1.0)], slopes=[]) == {}
    assert newest_runs(gauges(step=1, newest=float("nan")), slopes=[]) == {}


def test_a_silent_prometheus_leaves_the_runs_unknown_for_a_while_only() -> None:
    now = [0.0]
    prometheus = Prometheus(f"http://127.0.0.1:{free_port()}", patience=300, clock=lambda: now[0])
    assert prometheus.problem == ""
    for seconds, known in ((0, None), (299, None), (300, {}), (4000, {})):
        now[0] = float(seconds)
        assert prometheus.runs() == known
        assert "Prometheus does not answer" in prometheus.problem
