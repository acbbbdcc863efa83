"""The strategy that the settings name."""

from __future__ import annotations

import torch
from torch import nn

from training.communication.powersgd import PowerSgd
from training.config.schema import CommunicationSettings, StrategySettings
from training.strategies.data_parallel import DataParallel
from training.strategies.fully_sharded import FullySharded
from training.strategies.pipeline import Pipeline
from training.strategies.single_process import SingleProcess
from training.strategies.strategy import MakeOptimizer, Strategy


def build_strategy(
    module: nn.Module,
    make_optimizer: MakeOptimizer,
    *,
    settings: StrategySettings,
    communication: CommunicationSettings,
    powersgd: PowerSgd | None,
    device: torch.device,
    world: int,
    model: str,
) -> Strategy:
    """Distribute a module, which is the same on every rank and on its final device; a world of one has nothing to distribute.

    Raises:
        SettingsError: the model, whose name in the settings is `model`, does not fit the strategy.
    """
    if world == 1:
        return SingleProcess(module, make_optimizer)
    if settings.name == "ddp":
        if communication.sync_batchnorm:
            module = nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
        return DataParallel(module, make_optimizer, device=device, communication=communication, powersgd=powersgd)
    if settings.name == "pipeline":
        return Pipeline(module, make_optimizer, settings=settings, device=device, model=model)
    return FullySharded(module, make_optimizer, settings=settings, device=device)
