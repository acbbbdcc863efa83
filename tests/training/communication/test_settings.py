"""The section `communication`: what it refuses, and what synchronized batch norm keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.optim import SGD

from tests.training.launch.ranks import on_ranks
from training.config.schema import TrainingSettings
from training.launch.task import RankPlace
from training.process_group import process_group
from training.strategies.build import build_strategy


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"communication": {"rank": 4, "hook": "fp16"}}, "rank: settings of hook=powersgd, got hook=fp16"),
        (
            {"communication": {"start_step": 10}},
            "start_step: a setting of hook=powersgd and of local_steps, got hook=none",
        ),
        ({"communication": {"hook": "powersgd", "start_step": 1}}, "start_step=1: hook=powersgd needs 2 or more"),
        (
            {"communication": {"hook": "powersgd", "hierarchical": True}},
            "hierarchical=true sums gradients, and hook=powersgd",
        ),
        ({"communication": {"ranks_per_node": 2}}, "a setting of hierarchical=true and of node_steps; set one of them"),
        (
            {"communication": {"hierarchical": True, "ranks_per_node": 3}, "scale": {"workers": 8}},
            "communication.ranks_per_node=3 must divide scale.workers=8 into two nodes or more, .* nearest: 2",
        ),
        ({"communication": {"hierarchical": True, "ranks_per_node": 2}}, "leave out hierarchical and node_steps"),
        ({"communication": {"node_steps": 4}}, "node_steps: settings of a run with local_steps, which is not set"),
        ({"communication": {"outer_optimizer": "nesterov"}}, "outer_optimizer: settings of a run with local_steps"),
        (
            {"communication": {"local_steps": 4, "outer_momentum": 0.5}},
            "outer_momentum: settings of outer_optimizer=nesterov",
        ),
        ({"communication": {"local_steps": 1}}, "leave it out, or use 2 or more"),
        (
            {"communication": {"local_steps": 18, "node_steps": 4}},
            "must be a multiple of node_steps=4, .* nearest: local_steps=16",
        ),
        ({"communication": {"local_steps": 4, "node_steps": 4}}, "twice or more; nearest: local_steps=8"),
        (
            {"communication": {"local_steps": 4, "hook": "bf16"}},
            "hook=bf16 is for ranks that share every step, and local_steps=4",
        ),
        (
            {"communication": {"local_steps": 4, "shard_optimizer": True}},
            "shard_optimizer=True is for ranks that share every step",
        ),
        (
            {"communication": {"local_steps": 4}, "strategy": {"name": "fsdp2"}},
            "local_steps=4 is a setting of strategy.name=ddp",
        ),
        ({"communication": {"local_steps": 4}, "loop": {"nonfinite": "skip"}}, "under loop.nonfinite=skip; use stop"),
        (
            {"communication": {"local_steps": 4}, "ema": {"decay": 0.9}},
            "ema.decay=0.9 averages weights that all ranks have",
        ),
        (
            {"communication": {"local_steps": 4}, "precision": {"mode": "fp16"}, "scale": {"gpu": True}},
            "a loss scale of its own under precision.mode=fp16; use bf16 or fp32",
        ),
        ({"communication": {"hook": "powersgd", "static_graph": True}}, "set static_graph=false"),
        ({"communication": {"hook": "bf16"}, "scale": {"workers": 1}}, "use scale.workers=2"),
        ({"communication": {"bucket_megabytes": 5}, "scale": {"workers": 1}}, "communication.bucket_megabytes=5"),
        (
            {"communication": {"hook": "powersgd"}, "strategy": {"name": "fsdp2"}},
            "communication.hook=powersgd is a setting of strategy.name=ddp, got fsdp2; leave it out, or use strategy.name=ddp",
        ),
        (
            {"communication": {"hook": "fp16"}, "strategy": {"name": "hsdp", "replicas": 2}, "scale": {"workers": 4}},
            "got hsdp",
        ),
        ({"communication": {"static_graph": True}, "loop": {"accumulation": 2}}, "needs loop.accumulation=1, got 2"),
        ({"communication": {"sync_batchnorm": True}}, "needs scale.gpu=true"),
    ],
)
def test_a_combination_that_cannot_work_is_refused(sections: dict[str, dict[str, Any]], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TrainingSettings.model_validate(sections)


def _torchs_refusal(place: RankPlace) -> str:
    with (
        process_group(place, gpu=False, timeout_seconds=120),
        pytest.raises(ValueError, match="SyncBatchNorm") as refused,
    ):
        build_strategy(
            nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
            lambda it: SGD(it.parameters(), lr=0.1),
            settings=TrainingSettings.model_validate(
                {"communication": {"sync_batchnorm": True}, "scale": {"gpu": True}}
            ),
            place=place,
            device=torch.device("cpu"),
            report=print,
        )
    return str(refused.value)


def test_torch_synchronizes_batch_norm_on_gpus_only() -> None:
    """So the settings refuse it for CPUs before a process starts; here it shows that the layers are synchronized."""
    assert on_ranks(2, _torchs_refusal) == ["SyncBatchNorm layers only work with GPU modules"] * 2
