"""The report: a self-contained page with the run's facts, figures and tables, and valid SVG plots."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from observability.history import RunHistory
from observability.profiling.analysis import analyse
from observability.profiling.verdict import RunFigures
from observability.quantities import money
from observability.report import facts, write_report
from observability.runlog import FILE_NAME, Event, FlopsCounted, Notice, RunEnded, RunStarted, Step, TrainingStarted
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


HISTORY = RunHistory.from_events(restarted_run())


def test_the_headline_has_accuracy_speed_and_restarts() -> None:
    assert facts.headline_figures(HISTORY) == [
        ("test accuracy", "97.6 %"),
        ("best validation", "97.6 %"),
        ("steps of 230", "230"),
        ("samples per second", "3,546"),
        ("wall time", "21.0 s"),
        ("goodput", "4.3 %"),
        ("restarts, 31 steps lost", "2"),
    ]


PRICED = RunHistory.from_events(
    replace(event, dollars_per_hour=3600.0) if isinstance(event, RunStarted) else event for event in restarted_run()
)


def test_the_cost_is_a_headline_and_a_part_of_each_class_of_time_that_is_paid() -> None:
    held = PRICED.goodput.wall_seconds - PRICED.goodput.seconds["idle"]
    assert ("cost", money(held)) in facts.headline_figures(PRICED)
    shares = {share.name: share for share in facts.goodput_shares(PRICED.goodput)}
    assert shares["idle"].dollars is None
    paid = [share for name, share in shares.items() if name != "idle"]
    assert [share.dollars for share in paid] == [pytest.approx(share.seconds) for share in paid]
    events = restarted_run()
    first = next(index for index, event in enumerate(events) if isinstance(event, RunStarted))
    events[first] = PRICED.started or events[first]
    ((label, value),) = facts.cost_rows(RunHistory.from_events(events).goodput)
    assert re.fullmatch("cost, without .* at an unknown price", label), "of the second driver"
    assert value.startswith("$")


def test_the_flops_are_in_the_headline_and_the_peak_in_the_run_if_it_is_known() -> None:
    def of(counted: FlopsCounted) -> tuple[dict[str, str], dict[str, str]]:
        history = RunHistory.from_events([counted, *restarted_run()])
        return dict(facts.headline_figures(history)), dict(facts.run_rows(history, Path("/runs/a")))

    figures, rows = of(FlopsCounted(per_sample=2e9, device="NVIDIA A10G", peak=140e12))
    assert (figures["of the model"], figures["MFU"]) == ("7.09 TFLOP/s", "5.1 %")
    assert (rows["FLOPs per sample"], rows["peak of all ranks (NVIDIA A10G)"]) == ("2e+09", "140 TFLOP/s")
    figures, rows = of(FlopsCounted(per_sample=2e9, device="CPU"))
    assert "MFU" not in figures
    assert rows["peak of all ranks (CPU)"] == "unknown"


def test_the_run_s_own_code_has_its_hash_commit_and_archive() -> None:
    archive, commit = f"code/{'a' * 16}.tar.gz", "b" * 40
    for revision, is_dirty, text in ((None, None, None), (commit, False, commit), (commit, True, f"{commit}, changed")):
        code = {"sha256": "a" * 64, "revision": revision, "is_dirty": is_dirty, "archive": archive, "files": 1200}
        started = RunStarted(time=2e9, run="a", settings={}, environment={"code": code})
        rows = dict(facts.run_rows(RunHistory.from_events([*restarted_run(), started]), Path("/runs/a")))
        assert (rows["code SHA-256"], rows.get("code commit")) == ("a" * 64, text)
        assert rows["code archive"] == f"{archive}, 1,200 files"
    assert [label for label, _ in facts.run_rows(HISTORY, Path("/runs/a")) if label.startswith("code")] == []


def test_evaluations_are_listed_and_checkpoints_newest_first() -> None:
    columns = ("10", "230", "0.0906", "97.6 %", "180", "13 ms")
    assert facts.evaluation_rows(HISTORY) == [("test", *columns), ("best validation", *columns)]
    rows = facts.checkpoint_rows(HISTORY)
    assert rows[0] == ("200", "344.8 KiB", "1.9 ms", "12 ms", "step-00000200")
    assert [row[0] for row in rows] == ["200", "150", "100", "50"]


def test_shares_of_the_step_time_add_up_to_1() -> None:
    shares = facts.time_shares(HISTORY)
    assert [share.name for share in shares] == ["data", "forward", "backward", "optimizer", "checkpoint", "other"]
    assert [share.variable for share in shares] == [f"--part-{index}" for index in (0, 1, 2, 4, 5, 6)]
    assert sum(share.ratio for share in shares) == pytest.approx(1)
    assert sum(share.seconds for share in shares) == pytest.approx(sum(step.seconds for step in HISTORY.steps))


def test_the_wall_time_is_shared_by_the_productive_class_and_the_losses_with_their_meaning() -> None:
    shares = facts.goodput_shares(HISTORY.goodput)
    assert [share.name for share in shares][:4] == ["productive", "idle", "restart", "startup"]
    assert [share.seconds for share in shares[1:]] == sorted((share.seconds for share in shares[1:]), reverse=True)
    assert sum(share.ratio for share in shares) == pytest.approx(1)
    assert all(share.meaning == MEANINGS[share.name] for share in shares)  # type: ignore[index]
