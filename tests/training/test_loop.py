"""The loop in whole runs: when it saves, evaluates and stops, and which checkpoints are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from observability.history import part_seconds
from observability.runlog import Evaluated, read_all, select
from tests.training.launch.ranks import run_world
from tests.training.runs import run_alone, small_settings, steps_of
from training.checkpoint.store import committed_steps, local_store
from training.data.order import BatchPlan
from training.loop import planned_steps

STEPS_PER_EPOCH = 21


def test_a_run_has_all_steps_of_its_epochs_up_to_max_steps() -> None:
    plan = BatchPlan(size=1293, global_batch=64, world=1, accumulation=1)
    for epochs, max_steps, expected in ((3, None, 63), (3, 50, 50), (1, 1000, STEPS_PER_EPOCH)):
        settings = small_settings(loop={"epochs": epochs, "max_steps": max_steps})
        assert planned_steps(settings.loop, plan) == expected


def test_the_model_is_evaluated_every_evaluate_every_epochs_and_at_the_end(tmp_path: Path) -> None:
    run_alone(small_settings(loop={"epochs": 5, "evaluate_every": 2}), tmp_path)
    evaluated = [(event.split, event.epoch) for event in select(read_all(tmp_path), Evaluated)]
    assert evaluated == [("validation", 2), ("validation", 4), ("validation", 5), ("test", 5)]


def test_the_best_checkpoint_is_kept_as_well_as_the_newest(tmp_path: Path) -> None:
    settings = small_settings(
        loop={"epochs": 6},
        checkpoint={"every_steps": 1000, "keep_last": 1, "keep_best": 1},
        optimizer={"learning_rate": 0.02},
    )
    run_alone(settings, tmp_path)
    evaluations = [event for event in select(read_all(tmp_path), Evaluated) if event.split == "validation"]
    best = max(evaluations, key=lambda event: event.metrics["accuracy"])
    assert committed_steps(tmp_path / "checkpoints") == sorted({best.step, 6 * STEPS_PER_EPOCH})
    metrics = {manifest.step: manifest.metric for manifest in local_store(tmp_path / "checkpoints").manifests()}
    assert metrics[best.step] == best.metrics["accuracy"]


def test_the_first_step_of_an_epoch_has_the_delay_of_the_checkpoint_before_it(tmp_path: Path) -> None:
    run_alone(small_settings(loop={"epochs": 3}, checkpoint={"every_steps": STEPS_PER_EPOCH}), tmp_path)
    delayed = [step for step in steps_of(tmp_path) if step.checkpoint_seconds]
    assert [step.step for step in delayed] == [1 + STEPS_PER_EPOCH, 1 + 2 * STEPS_PER_EPOCH]
    assert all(sum(part_seconds(step)) == pytest.approx(step.seconds) for step in delayed)


def test_ranks_that_are_asked_to_stop_agree_on_the_step_and_log_their_own_times(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    outcome = run_world(small_settings(scale={"launcher": "torchrun", "workers": 2}), tmp_path)
    steps = steps_of(tmp_path)
    assert outcome.status == "stopped"
    assert outcome.step == steps[-1].step == committed_steps(tmp_path / "checkpoints")[-1]
    for step in steps:
        assert len(step.rank_seconds) == 2
        assert min(step.rank_seconds) > 0
        assert step.rank_seconds[0] <= step.seconds
