"""The strategy of a world of one: the model as it is."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import cast

import torch
from torch import Tensor, nn

from training.checkpoint.state import ModelState, OptimizerState
from training.checkpoint.stateful import Stateful
from training.passes import OneByOne, Passes, StepContext
from training.precision import Precision
from training.strategies.strategy import MakeOptimizer
from training.strategies.update import clip_and_step


class SingleProcess:
    """The whole model and its optimizer in this process."""

    averaged_ranks = 1
    note = ""
    computes_together = False
    pass_order = 0
    shards_state = False

    def __init__(self, module: nn.Module, make_optimizer: MakeOptimizer) -> None:
        self.module = module
        self.model: nn.Module = module
        self.optimizer = make_optimizer(module)
        self._parameters = [p for p in module.parameters() if p.requires_grad]

    @property
    def has_whole_state(self) -> bool:
        """Always."""
        return True

    @property
    def parameters(self) -> int:
        """Parameters of the model."""
        return sum(one.numel() for one in self.module.parameters())

    def passes(self, context: StepContext) -> Passes:
        """One micro-batch after the other."""
        return OneByOne(self, context)

    def infer(self, inputs: Tensor) -> Tensor:
        """The outputs of the bare model."""
        outputs: Tensor = self.module(inputs)
        return outputs

    def compile(self, mode: str) -> None:
        """Compile what a step calls; under DDP with its hooks, so that the all-reduce still overlaps with the backward pass."""
        self.model = cast("nn.Module", torch.compile(self.model, mode=mode, dynamic=False))

    def accumulating(self) -> AbstractContextManager[None]:
        """No-op: nothing is communicated."""
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        """Add the gradients; under DDP its hooks average them."""
        loss.backward()  # type: ignore[no-untyped-call]

    @property
    def has_gradients(self) -> bool:
        """Whether any weight has a gradient."""
        return any(one.grad is not None for one in self.module.parameters())

    def update(self, precision: Precision, clip_norm: float | None) -> tuple[float, bool]:
        """Clip by the norm, and step."""
        return clip_and_step(self, precision, clip_norm)

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
