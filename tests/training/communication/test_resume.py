"""A run with compressed gradients that is stopped and resumed: the same weights at the same number of workers, near ones at another."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from observability.runlog import Notice, Restored, Step, read_all, select
from tests.training.launch.ranks import run_world
from tests.training.runs import small_settings

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


def exported(run: Path) -> dict[str, Tensor]:
    return load_file(run / "model" / "model.safetensors")


def test_a_run_of_three_ranks_resumes_bit_for_bit(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", 3, POWERSGD)
    for steps in (2, 7):  # before PowerSGD starts, and after
        train(tmp_path / "parted", 3, POWERSGD, steps=steps)
    assert train(tmp_path / "parted", 3, POWERSGD) == whole
    assert [one.step for one in select(read_all(tmp_path / "parted"), Restored)] == [2, 7]


def test_another_number_of_ranks_starts_with_the_mean_of_their_errors(tmp_path: Path) -> None:
    """Also with another layout of the buckets: both differ from the run that goes on as it was by rounding only."""
    without_dropout: dict[str, Any] = {"model": {"name": "mlp", "options": {"hidden": [128, 128, 64]}}}
    train(tmp_path / "two", 2, POWERSGD, steps=7, **without_dropout)
    train(tmp_path / "four", 2, POWERSGD, steps=7, **without_dropout)
    train(tmp_path / "two", 2, POWERSGD, **without_dropout)
    train(tmp_path / "four", 4, {**POWERSGD, "bucket_megabytes": 0.1}, **without_dropout)
    losses = [torch.tensor([one.loss for one in select(read_all(tmp_path / name), Step)]) for name in ("two", "four")]
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)
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
