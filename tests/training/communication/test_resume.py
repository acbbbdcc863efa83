"""Runs with other communication that are stopped and resumed: the same weights at the same number of workers, near ones at another."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from observability.runlog import Notice, Restored, RunEnded, Step, read_all, select
from tests.training.launch.driver import arguments_for
from tests.training.launch.ranks import run_world
from tests.training.runs import exported, losses_of, small_settings
from training.checkpoint.store import FOLDER
from training.cli import main
from training.config.schema import TrainingSettings

STEPS = 12
POWERSGD: dict[str, Any] = {"hook": "powersgd", "start_step": 3, "bucket_megabytes": 0.03}


def train(
    folder: Path, ranks: int, communication: dict[str, Any], *, steps: int = STEPS, **sections: dict[str, Any]
) -> str:
    """Train, or resume, on some ranks; returns the hash of the exported weights."""
    usual: dict[str, dict[str, Any]] = {
        "model": {"name": "mlp", "options": {"hidden": [128, 128, 64], "dropout": 0.2}},
        "loop": {"max_steps": steps, "global_batch": 48},
        "schedule": {"name": "constant"},
        "scale": {"launcher": "torchrun", "workers": ranks},
        "communication": communication,
    }
    settings = small_settings(**{**usual, **sections})
    return run_world(settings, folder).weights_sha256


@pytest.mark.extended
def test_a_run_of_three_ranks_resumes_bit_for_bit(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", 3, POWERSGD)
    for steps in (2, 7):  # before PowerSGD starts, and after
        train(tmp_path / "parted", 3, POWERSGD, steps=steps)
    assert train(tmp_path / "parted", 3, POWERSGD) == whole
    assert [one.step for one in select(read_all(tmp_path / "parted"), Restored)] == [2, 7]


@pytest.mark.extended
def test_another_number_of_ranks_starts_with_the_mean_of_their_errors(tmp_path: Path) -> None:
    """Also with another layout of the buckets: both differ from the run that goes on as it was by rounding only."""
    without_dropout: dict[str, Any] = {"model": {"name": "mlp", "options": {"hidden": [128, 128, 64]}}}
    train(tmp_path / "two", 2, POWERSGD, steps=7, **without_dropout)
    train(tmp_path / "four", 2, POWERSGD, steps=7, **without_dropout)
    train(tmp_path / "two", 2, POWERSGD, **without_dropout)
    train(tmp_path / "four", 4, {**POWERSGD, "bucket_megabytes": 0.1}, **without_dropout)
    assert losses_of(tmp_path / "four") == pytest.approx(losses_of(tmp_path / "two"), rel=1e-4, abs=1e-5)
    other = exported(tmp_path / "four")
    for name, value in exported(tmp_path / "two").items():
        torch.testing.assert_close(value, other[name], rtol=1e-3, atol=2e-4)


def test_a_run_that_resumes_without_powersgd_says_what_it_forgets(tmp_path: Path) -> None:
    train(tmp_path / "begun", 2, POWERSGD, steps=5)
    others: list[tuple[int, dict[str, Any], dict[str, Any]]] = [
        (2, {"hook": "bf16"}, {}),
        (2, {}, {"strategy": {"name": "fsdp2"}}),
        (1, {}, {}),
    ]
    for number, (ranks, communication, sections) in enumerate(others):
        run = tmp_path / str(number)
        shutil.copytree(tmp_path / "begun", run)
        train(run, ranks, communication, steps=7, **sections)
        messages = [one.message for one in select(read_all(run), Notice)]
        assert any("PowerSGD's error feedback, which this run forgets" in message for message in messages)
        assert any("communication.hook: saved powersgd" in message for message in messages)
        assert len(select(read_all(run), Step)) == 7


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The weights of a run with the defaults."""
    return train(tmp_path_factory.mktemp("usual"), 2, {}, steps=6)


@pytest.mark.parametrize(
    "communication",
    [{"static_graph": True}, {"gradient_as_bucket_view": False, "bucket_megabytes": 0.01}, {"shard_optimizer": True}],
    ids=["static graph", "copied gradients in small buckets", "a sharded optimizer"],
)
def test_the_weights_are_those_of_the_defaults(tmp_path: Path, usual: str, communication: dict[str, Any]) -> None:
    assert train(tmp_path, 2, communication, steps=6) == usual


CNN: dict[str, Any] = {"model": {"name": "simple_cnn"}}
LOCAL_SGD: dict[str, Any] = {"local_steps": 4, "start_step": 2}
DILOCO: dict[str, Any] = {**LOCAL_SGD, "outer_optimizer": "nesterov", "outer_momentum": 0.5}
NODES: dict[str, Any] = {**LOCAL_SGD, "node_steps": 2, "ranks_per_node": 2}
LAST_STEP = 16


def settings(fault: str, root: Path) -> TrainingSettings:
    """Two ranks with a checkpoint every 5 steps; the second fails once in step 13, after the first checkpoint. One with batch norm."""
    options = {"step": 13, "rank": 1, "trace": str(root / "failed"), "run": str(root / "runs" / "run")}
    return small_settings(
        model={"name": f"tests.training.faults.models:{fault}", "options": options},
        loop={"max_steps": LAST_STEP},
        schedule={"name": "constant"},
        scale={"launcher": "torchrun", "workers": 2},
        communication=DILOCO,
    )


@pytest.mark.extended
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
    final = reference / "runs" / "run" / FOLDER / f"step-{LAST_STEP:08d}" / "model.safetensors"
    weights = exported(reference / "runs" / "run")
    assert all(value.equal(weights[name]) for name, value in load_file(final).items())


@pytest.mark.extended
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
