"""The strategy that the settings name."""

from __future__ import annotations

import torch
from torch import nn

from training.communication.powersgd import PowerSgd
from training.config.schema import TrainingSettings
from training.strategies.data_parallel import DataParallel
from training.strategies.fully_sharded import FullySharded
from training.strategies.pipeline import Pipeline
from training.strategies.single_process import SingleProcess
from training.strategies.strategy import MakeOptimizer, Strategy
from training.strategies.zero import Zero


def build_strategy(
    module: nn.Module,
    make_optimizer: MakeOptimizer,
    *,
    settings: TrainingSettings,
    powersgd: PowerSgd | None,
    device: torch.device,
    world: int,
) -> Strategy:
    """Distribute a module, which is the same on every rank and on its final device; a world of one has nothing to distribute.

    Raises:
        SettingsError: the model does not fit the strategy.
    """
    if world == 1:
        return SingleProcess(module, make_optimizer)
    strategy, communication = settings.strategy, settings.communication
    if strategy.name == "ddp":
        if communication.sync_batchnorm:
            module = nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
        return DataParallel(module, make_optimizer, device=device, communication=communication, powersgd=powersgd)
    if strategy.name == "pipeline":
        return Pipeline(module, make_optimizer, settings=strategy, device=device, model=settings.model.name)
    if strategy.is_zero:
        return Zero(module, make_optimizer, settings=settings, device=device)
    return FullySharded(module, make_optimizer, settings=strategy, device=device)
