"""The strategy of a world of one: the model as it is."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import cast

import torch
from torch import Tensor, nn

from training.checkpoint.state import ModelState, OptimizerState
from training.checkpoint.stateful import Stateful
from training.strategies.strategy import MakeOptimizer


class SingleProcess:
    """The whole model and its optimizer in this process."""

    averaged_ranks = 1
    computes_together = False
    shards_state = False

    def __init__(self, module: nn.Module, make_optimizer: MakeOptimizer) -> None:
        self.module = module
        self.model: nn.Module = module
        self.optimizer = make_optimizer(module)
        self._parameters = [p for p in module.parameters() if p.requires_grad]

    def compile(self, mode: str) -> None:
        """Compile what a step calls; under DDP with its hooks, so that the all-reduce still overlaps with the backward pass."""
        self.model = cast("nn.Module", torch.compile(self.model, mode=mode, dynamic=False))

    def accumulating(self) -> AbstractContextManager[None]:
        """No-op: nothing is communicated."""
        return nullcontext()

    def gradient_norm(self) -> Tensor:
        """The L2 norm over the parameters that have a gradient."""
        return nn.utils.get_total_norm([p.grad for p in self._parameters if p.grad is not None])

    def clip_gradients(self, limit: float, norm: Tensor) -> None:
        """Scale the gradients in place."""
        nn.utils.clip_grads_with_norm_(self._parameters, limit, norm)

    def synchronize_buffers(self) -> None:
        """No-op: there is one set of buffers."""

    def whole_module(self) -> nn.Module:
        """The bare model."""
        return self.module

    def states(self) -> dict[str, Stateful]:
        """The state of the bare model and of its optimizer."""
        return {"model": ModelState(self.module), "optimizer": OptimizerState(self.optimizer, self.module)}
