"""The report's figures and tables."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from observability.history import RunHistory
from observability.quantities import money
from observability.report import facts
from observability.runlog import FlopsCounted, RunStarted
from observability.time_classes import MEANINGS
from tests.observability.sample_run import WEIGHTS_SHA256, restarted_run

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


def test_the_run_has_its_configuration_times_and_results() -> None:
    rows = dict(facts.run_rows(HISTORY, Path("/runs/a")))
    assert [rows[key] for key in ("model", "dataset", "launcher", "seed")] == ["simple_cnn", "digits", "ray", "0"]
    assert rows["workers"] == "2 on CPU"
    assert (rows["started"], rows["ended"]) == ("2026-09-21 14:13:20 UTC", "2026-09-21 14:14:41 UTC")
    assert (rows["parameters"], rows["training samples"], rows["steps per epoch"]) == ("28,938", "1,437", "23")
    assert rows["newest checkpoint"] == "checkpoints/step-00000200"
    assert (rows["weights SHA-256"], rows["run directory"]) == (WEIGHTS_SHA256, "/runs/a")


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


def test_nested_settings_become_dotted_keys() -> None:
    tree = {"a": {"b": [1, 2], "c": True}, "d": None, "e": {}}
    assert facts.flat_rows(tree) == [("a.b", "1, 2"), ("a.c", "true"), ("d", "none"), ("e", "none")]
