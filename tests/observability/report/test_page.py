"""The report: a self-contained page with the run's facts and valid SVG plots."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from observability.profiling.analysis import analyse
from observability.profiling.verdict import RunFigures
from observability.report import write_report
from observability.runlog import FILE_NAME, Event, Notice, RunEnded, Step, TrainingStarted
from observability.time_classes import CLASSES, MEANINGS
from tests.observability.profiling.traces import Rank, event, write_profile
from tests.observability.report.parsed_page import Page, assert_is_self_contained
from tests.observability.sample_run import NAME, WEIGHTS_SHA256, SampleRun, finished_run, restarted_run, write_run

ALL_PLOTS = ["loss", "accuracy", "throughput", "optimization", "step-time", "startup", "checkpoints"]


def page_of(folder: Path, events: list[Event], *, is_running: bool = False) -> Page:
    """The report of a run with these events."""
    return Page(write_report(write_run(folder, events), is_running=is_running).read_text(encoding="utf-8"))


def plots(page: Page) -> list[str]:
    """Keys of the plots in page order."""
    return [key for key in page.ids if key in ALL_PLOTS]


def test_the_page_of_a_run_with_restarts_is_self_contained_and_has_its_facts_and_every_plot(tmp_path: Path) -> None:
    page = page_of(tmp_path, restarted_run())
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE_NAME, "report.html"]
    assert plots(page) == ALL_PLOTS
    tags = [ET.fromstring(drawing).tag for drawing in page.drawings]  # noqa: S314 - our own output
    assert tags == ["{http://www.w3.org/2000/svg}svg"] * len(ALL_PLOTS)
    assert page.references, "plots refer to their own <defs>"
    assert_is_self_contained(page)
    for name in CLASSES:
        assert page.html.count(f"--time-{name}: #") == 2, "a colour in light and dark mode"
    for fact in (
        NAME,
        "done",
        WEIGHTS_SHA256,
        "restarts, 31 steps lost",
        "optimizer.betas",
        "packages.torch",
        "killed by signal 9",
        "of 1 min 21 s, pauses included",
        MEANINGS["detection"],
    ):
        assert fact in page.text
    for label in (
        "cross-entropy (nats)",
        "samples per second, all ranks",
        "milliseconds per step, rank 0",
        "clip norm 1",
    ):
        assert any(label in drawing for drawing in page.drawings), label
    assert "The band" not in page.text


def test_of_a_long_run_steps_are_grouped_and_only_the_newest_checkpoints_listed(tmp_path: Path) -> None:
    page = page_of(tmp_path, finished_run(2000))
    assert "The band shows the minimum and maximum of every 3 consecutive steps." in page.text
    assert "Each point is the mean of 3 steps." in page.text
    assert "The newest 8 of 40 committed checkpoints." in page.text
    assert "step-00001650" in page.text
    assert "step-00001600" not in page.text


def test_a_run_has_the_plots_that_it_has_data_for(tmp_path: Path) -> None:
    unsaved = [key for key in ALL_PLOTS if key != "checkpoints"]
    short = SampleRun(steps=1, steps_per_epoch=1).start().train(1, 1).finish().events
    assert plots(page_of(tmp_path / "short", short)) == unsaved
    never_finite = [
        replace(event, loss=math.nan, gradient_norm=math.inf) if isinstance(event, Step) else event
        for event in SampleRun().start().train(1, 12).events
    ]
    assert plots(page_of(tmp_path / "nan", never_finite)) == unsaved
    started = next(event for event in finished_run(1) if isinstance(event, TrainingStarted))
    assert plots(page_of(tmp_path / "started", [started])) == []


def test_the_newest_profile_is_shown_with_its_verdict_and_a_bar_per_rank(tmp_path: Path) -> None:
    late = Rank(steps=[(0, 50, 100)], data=50, events=[event("sgemm", "kernel", 50, 100)])
    analyse(write_profile(tmp_path, [late, late]), RunFigures())
    page = page_of(tmp_path, finished_run())
    assert "profile" in page.ids
    assert "Profile of step 10" in page.text
    assert "50.0 % of a step's 100 ms" in page.text
    assert "Try first: " in page.text
    assert len(page.drawings) == len(ALL_PLOTS) + 1
    ET.fromstring(page.drawings[-1])  # noqa: S314 - our own output


def test_a_run_that_is_still_going_is_reported(tmp_path: Path) -> None:
    events = SampleRun().start().train(1, 40).events
    page = page_of(tmp_path, events, is_running=True)
    assert ">running<" in page.html
    assert plots(page) == [key for key in ALL_PLOTS if key != "checkpoints"]
    assert ">killed<" in page_of(tmp_path, events).html


def test_a_run_that_failed_before_training_shows_its_error_and_start_up(tmp_path: Path) -> None:
    events = SampleRun().start().events
    ended = RunEnded(time=events[-1].time + 2, status="failed", step=0, message="dataset path is missing")
    page = page_of(tmp_path, [*events, ended])
    assert "dataset path is missing" in page.text
    assert "no step completed" in page.text
    assert plots(page) == ["startup"]


def test_text_of_the_run_is_escaped(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    events = [*finished_run(30), Notice(level="warning", message=hostile)]
    page = page_of(tmp_path, events)
    assert hostile in page.text
    assert page.tags["script"] == 0


def test_a_directory_without_an_event_log_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"it contains no {FILE_NAME}"):
        write_report(tmp_path)
