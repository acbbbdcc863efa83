"""The strategy that the settings name."""

from __future__ import annotations

import torch
from torch import nn

from training.config.schema import StrategySettings
from training.strategies.data_parallel import DataParallel
from training.strategies.fully_sharded import FullySharded
from training.strategies.single_process import SingleProcess
from training.strategies.strategy import MakeOptimizer, Strategy


def build_strategy(
    module: nn.Module, make_optimizer: MakeOptimizer, *, settings: StrategySettings, device: torch.device, world: int
) -> Strategy:
    """Distribute a module, which is the same on every rank and on its final device; a world of one has nothing to distribute."""
    if world == 1:
        return SingleProcess(module, make_optimizer)
    if settings.name == "ddp":
        return DataParallel(module, make_optimizer, device=device)
    return FullySharded(module, make_optimizer, settings=settings, device=device)
