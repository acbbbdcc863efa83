"""The strategy that the settings name, with what its ranks send each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from training.checkpoint.state import ChangedBuffers
from training.checkpoint.stateful import Stateful
from training.communication import wire
from training.communication.nodes import NodeGroups, node_groups, ranks_per_node
from training.communication.powersgd import PowerSgd
from training.communication.tree import SumOverRanks, tree_all_reduce
from training.config.schema import TrainingSettings
from training.launch.task import RankPlace
from training.strategies.data_parallel import DataParallel
from training.strategies.fully_sharded import FullySharded
from training.strategies.local_training import LocalTraining
from training.strategies.logical_shards import LogicalShards
from training.strategies.pipeline import Pipeline
from training.strategies.single_process import SingleProcess
from training.strategies.strategy import MakeOptimizer, Strategy
from training.strategies.zero import Zero

_FORGOTTEN = {
    "communication": "PowerSGD's error feedback, which this run forgets: of the gradients so far, what was not sent is lost",
    "ranks": "what each rank of local training had of its own, which this run forgets: it starts from the mean of the ranks",
    "outer_optimizer": "the state of DiLoCo's outer optimizer, which this run forgets: its momentum is lost",
}
"""States of some strategies, by name; the others continue without."""


def build_strategy(
    module: nn.Module,
    make_optimizer: MakeOptimizer,
    *,
    settings: TrainingSettings,
    place: RankPlace,
    device: torch.device,
    report: Callable[[str], None],
) -> Strategy:
    """Distribute a module, which is the same on every rank and on its final device; a world of one has nothing to distribute.

    Raises:
        SettingsError: the model does not fit the strategy, or what the ranks are to send the nodes.
    """
    if settings.loop.logical_shards is not None:
        return LogicalShards(module, make_optimizer, shards=settings.loop.logical_shards, world=place.world)
    if place.world == 1:
        return SingleProcess(module, make_optimizer)
    if settings.strategy.name == "ddp":
        return _build_data_parallel(
            module, make_optimizer, settings=settings, place=place, device=device, report=report
        )
    if settings.strategy.name == "pipeline":
        return Pipeline(module, make_optimizer, settings=settings.strategy, device=device, model=settings.model.name)
    if settings.strategy.is_zero:
        return Zero(module, make_optimizer, settings=settings, device=device)
    return FullySharded(module, make_optimizer, settings=settings.strategy, device=device)


def sum_over_ranks(settings: TrainingSettings) -> SumOverRanks:
    """How the numbers of a step are summed over the ranks: as the strategy of the settings sums gradients."""
    return dist.all_reduce if settings.loop.logical_shards is None else tree_all_reduce


def states_of(strategy: Strategy, report: Callable[[str], None]) -> dict[str, Stateful]:
    """The states of a strategy; in place of what only others have, something that reports that it is forgotten.

    Call it before the model computes.
    """
    own = {**strategy.states(), "buffers": ChangedBuffers(strategy.module)}
    return {**own, **{name: _Forgotten(text, report) for name, text in _FORGOTTEN.items() if name not in own}}


def _build_data_parallel(
    module: nn.Module,
    make_optimizer: MakeOptimizer,
    *,
    settings: TrainingSettings,
    place: RankPlace,
    device: torch.device,
    report: Callable[[str], None],
) -> DataParallel:
    communication = settings.communication
    if communication.sync_batchnorm:
        module = nn.SyncBatchNorm.convert_sync_batchnorm(module)  # type: ignore[no-untyped-call]
    uses_nodes = communication.hierarchical or communication.node_steps is not None
    ranks = ranks_per_node(communication, place, device) if uses_nodes else None
    for line in wire.describe(module.parameters(), communication, world=place.world, ranks_per_node=ranks):
        report(line)
    if communication.local_steps is not None:
        return LocalTraining(module, make_optimizer, device=device, communication=communication, ranks_per_node=ranks)
    powersgd: PowerSgd | None = None
    nodes: NodeGroups | None = None
    if communication.hook == "powersgd":
        powersgd = PowerSgd(communication, seed=settings.run.seed, undoes=settings.may_skip_steps)
    if communication.hierarchical and ranks is not None:
        nodes = node_groups(ranks, timeout_seconds=settings.scale.collective_timeout)
    return DataParallel(
        module, make_optimizer, device=device, communication=communication, powersgd=powersgd, nodes=nodes
    )


class _Forgotten:
    """Lets a run resume from a checkpoint with a state that it has no use for."""

    def __init__(self, what: str, report: Callable[[str], None]) -> None:
        self._what = what
        self._report = report

    def state_dict(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Forget the state, and say so."""
        del state_dict
        self._report(f"the checkpoint has {self._what}")
