"""The section `communication`: what it refuses, and what synchronized batch norm keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.optim import SGD

from tests.training.launch.ranks import on_ranks
from training.config.schema import CommunicationSettings, TrainingSettings
from training.launch.task import RankPlace
from training.process_group import process_group
from training.strategies.build import build_strategy


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"communication": {"rank": 4, "hook": "fp16"}}, "rank: settings of hook=powersgd, got hook=fp16"),
        ({"communication": {"hook": "powersgd", "start_step": 1}}, "greater than or equal to 2"),
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
            settings=TrainingSettings().model_copy(
                update={"communication": CommunicationSettings(sync_batchnorm=True)}
            ),
            powersgd=None,
            device=torch.device("cpu"),
            world=place.world,
        )
    return str(refused.value)


def test_torch_synchronizes_batch_norm_on_gpus_only() -> None:
    """So the settings refuse it for CPUs before a process starts; here it shows that the layers are synchronized."""
    assert on_ranks(2, _torchs_refusal) == ["SyncBatchNorm layers only work with GPU modules"] * 2
