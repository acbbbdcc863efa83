"""The report: a self-contained page with the run's facts and valid SVG plots."""

from __future__ import annotations

import math
import re
from collections import Counter
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
from tests.observability.report.parsed_page import Page
from tests.observability.sample_run import NAME, WEIGHTS_SHA256, SampleRun, finished_run, restarted_run, write_run

ALL_PLOTS = ["loss", "accuracy", "throughput", "optimization", "step-time", "startup", "checkpoints"]


class RunPage(Page):
    """The report of a run."""

    @property
    def plots(self) -> list[str]:
        """Keys of the plots in page order."""
        return [key for key in self.ids if key in ALL_PLOTS]


def page_of(folder: Path, events: list[Event], *, is_running: bool = False) -> RunPage:
    """The report of a run with these events."""
    return RunPage(write_report(write_run(folder, events), is_running=is_running).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> RunPage:
    """The report of a run with restarts."""
    return page_of(tmp_path_factory.mktemp("run"), restarted_run())


def test_the_page_is_written_to_the_run_directory(tmp_path: Path) -> None:
    assert write_report(write_run(tmp_path, finished_run())) == tmp_path / "report.html"
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE_NAME, "report.html"]


def test_a_finished_run_has_every_plot(page: RunPage) -> None:
    assert page.plots == ALL_PLOTS


def test_every_drawing_is_valid_xml(page: RunPage) -> None:
    tags = [ET.fromstring(drawing).tag for drawing in page.drawings]  # noqa: S314 - our own output
    assert tags == ["{http://www.w3.org/2000/svg}svg"] * len(ALL_PLOTS)


def test_the_page_is_self_contained(page: RunPage) -> None:
    assert page.references, "plots refer to their own <defs>"
    assert [reference for reference in page.references if not reference.startswith("#")] == []
    assert re.findall(r"url\((?!#)|@import", page.html) == []
    assert page.tags["script"] == page.tags["link"] == page.tags["img"] == 0


def test_ids_are_unique(page: RunPage) -> None:
    assert [key for key, count in Counter(page.ids).items() if count > 1] == []


def test_every_reference_has_a_target(page: RunPage) -> None:
    targets = {*page.references, *(f"#{key}" for key in re.findall(r"url\(#([^)]*)\)", page.html))}
    assert targets <= {f"#{key}" for key in page.ids}


def test_plots_contain_no_colours_of_their_own(page: RunPage) -> None:
    colours = {colour for drawing in page.drawings for colour in re.findall(r"#[0-9a-f]{6}\b(?![0-9a-f])", drawing)}
    assert colours == set()


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


def test_every_class_of_time_has_a_colour_in_light_and_dark_mode(page: RunPage) -> None:
    for name in CLASSES:
        assert page.html.count(f"--time-{name}: #") == 2, name


def test_every_css_variable_is_defined_for_light_and_dark_mode(page: RunPage) -> None:
    used = set(re.findall(r"var\((--[\w-]+)\)", page.html))
    assert used
    for variable in used:
        assert page.html.count(f"{variable}: #") == 2, variable


@pytest.mark.parametrize(
    "fact",
    [
        NAME,
        "done",
        WEIGHTS_SHA256,
        "restarts, 31 steps lost",
        "optimizer.betas",
        "packages.torch",
        "killed by signal 9",
        "of 1 min 21 s, pauses included",
        MEANINGS["detection"],
    ],
)
def test_the_page_contains(fact: str, page: RunPage) -> None:
    assert fact in page.text


@pytest.mark.parametrize(
    "label",
    [
        "cross-entropy (nats)",
        "samples per second, all ranks",
        "milliseconds per step, rank 0",
        "restart",
        "clip norm 1",
    ],
)
def test_a_plot_contains_the_label(label: str, page: RunPage) -> None:
    assert any(label in drawing for drawing in page.drawings)


def test_grouped_steps_are_explained(tmp_path: Path) -> None:
    page = page_of(tmp_path, finished_run(2000))
    assert "The band shows the minimum and maximum of every 3 consecutive steps." in page.text
    assert "Each point is the mean of 3 steps." in page.text


def test_ungrouped_steps_are_not_called_grouped(page: RunPage) -> None:
    assert "The band" not in page.text


def test_only_the_newest_checkpoints_are_listed(tmp_path: Path) -> None:
    page = page_of(tmp_path, finished_run(1000))
    assert "The newest 8 of 20 committed checkpoints." in page.text
    assert "step-00000650" in page.text
    assert "step-00000600" not in page.text


def test_a_run_that_is_still_going_is_reported(tmp_path: Path) -> None:
    events = SampleRun().start().train(1, 40).events
    page = page_of(tmp_path, events, is_running=True)
    assert ">running<" in page.html
    assert page.plots == [key for key in ALL_PLOTS if key != "checkpoints"]
    assert ">killed<" in page_of(tmp_path, events).html


def test_a_run_of_one_step_has_its_plots(tmp_path: Path) -> None:
    page = page_of(tmp_path, SampleRun(steps=1, steps_per_epoch=1).start().train(1, 1).finish().events)
    assert page.plots == [key for key in ALL_PLOTS if key != "checkpoints"]


def test_a_run_that_failed_before_training_shows_its_error_and_start_up(tmp_path: Path) -> None:
    events = SampleRun().start().events
    ended = RunEnded(time=events[-1].time + 2, status="failed", step=0, message="dataset path is missing")
    page = page_of(tmp_path, [*events, ended])
    assert "dataset path is missing" in page.text
    assert "no step completed" in page.text
    assert page.plots == ["startup"]


def test_a_run_whose_loss_was_never_finite_is_reported(tmp_path: Path) -> None:
    events = [
        replace(event, loss=math.nan, gradient_norm=math.inf) if isinstance(event, Step) else event
        for event in SampleRun().start().train(1, 12).events
    ]
    assert page_of(tmp_path, events).plots == [key for key in ALL_PLOTS if key != "checkpoints"]


def test_text_of_the_run_is_escaped(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>"
    events = [*finished_run(30), Notice(level="warning", message=hostile)]
    page = page_of(tmp_path, events)
    assert hostile in page.text
    assert page.tags["script"] == 0


def test_an_event_log_with_only_training_started_is_reported(tmp_path: Path) -> None:
    started = TrainingStarted(
        world=1,
        start_step=0,
        total_steps=5,
        steps_per_epoch=5,
        parameters=1,
        train_samples=1,
        dataset_fingerprint="ab",
    )
    assert page_of(tmp_path, [started]).plots == []


def test_a_directory_without_an_event_log_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"it contains no {FILE_NAME}"):
        write_report(tmp_path)
