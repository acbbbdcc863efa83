"""The report's figures and tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from observability.history import RunHistory
from observability.report import facts
from tests.observability.sample_run import WEIGHTS_SHA256, restarted_run

HISTORY = RunHistory.from_events(restarted_run())


def test_the_headline_has_accuracy_speed_and_restarts() -> None:
    assert facts.headline_figures(HISTORY) == [
        ("test accuracy", "97.6 %"),
        ("best validation", "97.6 %"),
        ("steps of 230", "230"),
        ("samples per second", "3,546"),
        ("wall time", "21.0 s"),
        ("restarts, 31 steps lost", "2"),
    ]


def test_the_run_has_its_configuration_times_and_results() -> None:
    rows = dict(facts.run_rows(HISTORY, Path("/runs/a")))
    assert [rows[key] for key in ("model", "dataset", "launcher", "seed")] == ["simple_cnn", "digits", "ray", "0"]
    assert rows["workers"] == "2 on CPU"
    assert (rows["started"], rows["ended"]) == ("2026-09-21 14:13:20 UTC", "2026-09-21 14:14:41 UTC")
    assert (rows["parameters"], rows["training samples"], rows["steps per epoch"]) == ("28,938", "1,437", "23")
    assert rows["newest checkpoint"] == "checkpoints/step-00000200"
    assert (rows["weights SHA-256"], rows["run directory"]) == (WEIGHTS_SHA256, "/runs/a")


def test_the_test_and_the_best_validation_are_listed() -> None:
    columns = ("10", "230", "0.0906", "97.6 %", "180", "13 ms")
    assert facts.evaluation_rows(HISTORY) == [("test", *columns), ("best validation", *columns)]


def test_checkpoints_are_listed_newest_first() -> None:
    rows = facts.checkpoint_rows(HISTORY)
    assert rows[0] == ("200", "344.8 KiB", "1.9 ms", "12 ms", "step-00000200")
    assert [row[0] for row in rows] == ["200", "150", "100", "50"]


def test_shares_of_the_step_time_add_up_to_1() -> None:
    shares = facts.time_shares(HISTORY)
    assert [share.name for share in shares] == ["data", "forward", "backward", "optimizer", "checkpoint", "other"]
    assert [share.variable for share in shares] == [f"--part-{index}" for index in range(6)]
    assert sum(share.ratio for share in shares) == pytest.approx(1)
    assert sum(share.seconds for share in shares) == pytest.approx(sum(step.seconds for step in HISTORY.steps))


def test_nested_settings_become_dotted_keys() -> None:
    tree = {"a": {"b": [1, 2], "c": True}, "d": None, "e": {}}
    assert facts.flat_rows(tree) == [("a.b", "1, 2"), ("a.c", "true"), ("d", "none"), ("e", "none")]
