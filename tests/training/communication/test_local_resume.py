"""Runs whose ranks train alone, stopped between two averages or killed, and resumed: the same weights, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from observability.runlog import Notice, Restored, RunEnded, read_all, select
from tests.training.communication.test_resume import exported, train
from tests.training.launch.driver import arguments_for
from tests.training.launch.ranks import run_world
from tests.training.runs import small_settings
from training.checkpoint.store import FOLDER
from training.cli import main
from training.config.schema import TrainingSettings

CNN: dict[str, Any] = {"model": {"name": "simple_cnn"}}
LOCAL_SGD: dict[str, Any] = {"local_steps": 4, "start_step": 2}
DILOCO: dict[str, Any] = {**LOCAL_SGD, "outer_optimizer": "nesterov", "outer_momentum": 0.5}
NODES: dict[str, Any] = {**LOCAL_SGD, "node_steps": 2, "ranks_per_node": 2}
STEPS = 16


def settings(fault: str, root: Path) -> TrainingSettings:
    """Two ranks with a checkpoint every 5 steps; the second fails once in step 13, after the first checkpoint. One with batch norm."""
    options = {"step": 13, "rank": 1, "trace": str(root / "failed"), "run": str(root / "runs" / "run")}
    return small_settings(
        model={"name": f"tests.training.faults.models:{fault}", "options": options},
        loop={"max_steps": STEPS},
        schedule={"name": "constant"},
        scale={"launcher": "torchrun", "workers": 2},
        communication=DILOCO,
    )


def test_a_rank_killed_between_two_averages_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    assert main(arguments_for(settings("killed", tmp_path), tmp_path)) == 0
    events = read_all(tmp_path / "runs" / "run")
    # Averages follow steps 6, 10 and 14; in step 5 the ranks differ.
    assert select(events, Restored)[0].step in (5, 10)
    reference = tmp_path / "reference"
    reference.mkdir()
    (reference / "failed").touch()
    uninterrupted = run_world(settings("killed", reference), reference / "runs" / "run")
    assert select(events, RunEnded)[-1].weights_sha256 == uninterrupted.weights_sha256
    final = reference / "runs" / "run" / FOLDER / f"step-{STEPS:08d}" / "model.safetensors"
    weights = exported(reference / "runs" / "run")
    assert all(value.equal(weights[name]) for name, value in load_file(final).items())


@pytest.mark.long
def test_a_run_on_two_nodes_that_stops_often_ends_in_the_same_weights(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", 4, NODES, **CNN)
    for steps in (1, 3, 5, 6, 12):
        parted = train(tmp_path / "parted", 4, NODES, steps=steps, **CNN)
    assert parted == whole


def test_other_ranks_and_strategies_start_from_the_mean(tmp_path: Path) -> None:
    """Three ranks, then DDP with two."""
    train(tmp_path, 2, DILOCO, steps=5, **CNN)
    train(tmp_path, 3, DILOCO, steps=5, **CNN)
    mean = exported(tmp_path)
    train(tmp_path, 2, {}, steps=5, **CNN)
    assert all(value.equal(mean[name]) for name, value in exported(tmp_path).items())
    train(tmp_path, 2, {}, steps=6, **CNN)
    messages = "\n".join(one.message for one in select(read_all(tmp_path), Notice))
    assert "what each rank of local training had of its own, which this run forgets" in messages
    assert "the state of DiLoCo's outer optimizer, which this run forgets" in messages
    assert (
        "communication.local_steps=4: from step 3 on the 2 ranks average their 0.0962 MB of weights every 4 steps"
        in messages
    )
