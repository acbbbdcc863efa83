"""The protocol of strategies, used by the step, the evaluation and the checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from torch import Tensor, nn
from torch.optim import Optimizer

from training.checkpoint.stateful import Stateful

MakeOptimizer = Callable[[nn.Module], Optimizer]
"""Builds the optimizer of a module on its final device. A strategy calls it, because it may change the parameters first."""


class Strategy(Protocol):
    """Wraps a model, and owns its optimizer, gradients and state.

    Every rank calls the same methods in the same order; a strategy may communicate in any of them.
    """

    @property
    def model(self) -> nn.Module:
        """The module that a training step calls."""
        ...

    @property
    def module(self) -> nn.Module:
        """The bare model, for evaluation; rank 0's is the one that counts (`synchronize_buffers`)."""
        ...

    @property
    def computes_together(self) -> bool:
        """Whether a forward pass communicates, so that every rank has to make as many of them as its peers."""
        ...

    @property
    def shards_state(self) -> bool:
        """Whether ranks have different parts of the state of the model or its optimizer.

        Then every rank writes its own part of a checkpoint, and reads no more than that: see `Stateful.state_dict` for what a rank
        may have, and `Partial` for how a state tells which part it wants.
        """
        ...

    def whole_module(self) -> nn.Module:
        """The bare model with whole tensors, for export. Called on every rank; at least rank 0's has the weights."""
        ...

    def compile(self, mode: str) -> None:
        """Let training steps call the model compiled by `torch.compile`; `module` stays as it is.

        Every shape of a batch is compiled by itself: which kernels a step uses depends on its batch only, so that a run that was resumed
        uses the same ones.

        Args:
            mode: of `torch.compile`.
        """
        ...

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer of the model's parameters."""
        ...

    @property
    def averaged_ranks(self) -> int:
        """Number of ranks over which gradients are averaged; times it, they are sums over the ranks."""
        ...

    def accumulating(self) -> AbstractContextManager[None]:
        """The context of every micro-batch but a step's last: gradients accumulate locally, as in DDP's `no_sync`."""
        ...

    def gradient_norm(self) -> Tensor:
        """The L2 norm of the gradients of all parameters, a scalar."""
        ...

    def clip_gradients(self, limit: float, norm: Tensor) -> None:
        """Scale gradients of norm `norm` down to `limit`."""
        ...

    def synchronize_buffers(self) -> None:
        """Make the buffers of the bare model, such as batch norm's running statistics, rank 0's on every rank.

        Rank 0's are those that `states` saves and the export holds. Training steps may let the other ranks' differ.
        """
        ...

    def states(self) -> dict[str, Stateful]:
        """The state of the model and of the optimizer, under the names `model` and `optimizer`.

        Under `shards_state` each rank's has that rank's part: `ModelState` and `OptimizerState` of the module that the rank has do.
        """
        ...
