"""The section `communication`: what it refuses, and what synchronized batch norm keeps."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import SGD

from tests.training.config.refused import assert_refused
from tests.training.launch.ranks import on_ranks
from training.config.schema import TrainingSettings
from training.launch.task import RankPlace
from training.process_group import process_group
from training.strategies.build import build_strategy


def test_a_combination_that_cannot_work_is_refused() -> None:
    alone = "is for ranks that share every step"
    cases = {
        "rank=4 hook=fp16": "rank: settings of hook=powersgd, got hook=fp16",
        "start_step=10": "start_step: a setting of hook=powersgd and of local_steps, got hook=none",
        "hook=powersgd start_step=1": "start_step=1: hook=powersgd needs 2 or more",
        "hook=powersgd hierarchical=true": "hierarchical=true sums gradients, and hook=powersgd",
        "ranks_per_node=2": "a setting of hierarchical=true and of node_steps; set one of them",
        "hierarchical=true ranks_per_node=3 scale.workers=8": "must divide scale.workers=8 into two nodes … nearest: 2",
        "hierarchical=true ranks_per_node=2": "leave out hierarchical and node_steps",
        "node_steps=4": "node_steps: settings of a run with local_steps, which is not set",
        "outer_optimizer=nesterov": "outer_optimizer: settings of a run with local_steps",
        "local_steps=4 outer_momentum=0.5": "outer_momentum: settings of outer_optimizer=nesterov",
        "local_steps=1": "leave it out, or use 2 or more",
        "local_steps=18 node_steps=4": "must be a multiple of node_steps=4, … nearest: local_steps=16",
        "local_steps=4 node_steps=4": "twice or more; nearest: local_steps=8",
        "local_steps=4 shard_optimizer=true": f"shard_optimizer=True {alone}",
        "local_steps=4 strategy.name=fsdp2": "local_steps=4 is a setting of strategy.name=ddp",
        "local_steps=4 loop.nonfinite=skip": "under loop.nonfinite=skip; use stop",
        "local_steps=4 ema.decay=0.9": "ema.decay=0.9 averages weights that all ranks have",
        "local_steps=4 precision.mode=fp16 scale.gpu=true": "a loss scale of its own under precision.mode=fp16; use bf",
        "hook=powersgd static_graph=true": "set static_graph=false",
        "hook=bf16 scale.workers=1": "use scale.workers=2",
        "hook=powersgd strategy.name=fsdp2": "is a setting of strategy.name=ddp, got fsdp2; leave it out, or use",
        "static_graph=true loop.accumulation=2": "needs loop.accumulation=1, got 2",
        "sync_batchnorm=true": "needs scale.gpu=true",
    }

    def full(setting: str) -> str:
        return setting if "." in setting.partition("=")[0] else f"communication.{setting}"

    assert_refused({" ".join(map(full, settings.split(" "))): words for settings, words in cases.items()})


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
