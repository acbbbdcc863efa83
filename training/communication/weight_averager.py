"""Averages of the ranks' weights, every so many steps: among the ranks of a node, and among all."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager

from training.config.schema import CommunicationSettings


class WeightAverager:
    """torch's `HierarchicalModelAverager`, of which `PeriodicModelAverager` is the case of one level.

    torch's `PostLocalSGDOptimizer`, which calls it, keeps the parameter groups that `Optimizer.load_state_dict` replaces: a resumed run
    would not see its learning rate. Its `post_localSGD_hook` is for ranks that still share gradients within a node at every step.
    """

    def __init__(self, settings: CommunicationSettings, *, ranks_per_node: int | None) -> None:
        """Prepare the groups. Every rank calls it.

        Args:
            settings: with local_steps.
            ranks_per_node: of every node; None without node_steps.
        """
        assert settings.local_steps is not None, "local_steps is not set"
        periods: OrderedDict[int, int] = OrderedDict()
        if settings.node_steps is not None and ranks_per_node is not None:
            periods[settings.node_steps] = ranks_per_node
        periods[settings.local_steps] = dist.get_world_size()
        self._averager = HierarchicalModelAverager(periods)  # type: ignore[no-untyped-call]
        self._local_steps = settings.local_steps

    @torch.no_grad()
    def average(self, parameters: Sequence[nn.Parameter], step: int) -> bool:
        """Average weights after local step `step`, counted from 1, if that is due; returns whether all ranks have the same now.

        Weights without a gradient are left as they are.
        """
        before = [parameter.data for parameter in parameters]
        self._averager.step = step  # a function of the step: nothing to save
        self._averager.average_parameters(parameters)
        for parameter, memory in zip(parameters, before, strict=True):
            if parameter.data_ptr() != memory.data_ptr():
                # torch gives every weight a part of a new tensor, in row-major order. The optimizer's state, and compiled code, want the
                # memory and the order that the weight had, e.g. channels-last.
                memory.copy_(parameter.data)
                parameter.data = memory
        return step % self._local_steps == 0
