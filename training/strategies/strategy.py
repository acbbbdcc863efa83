"""The protocol of strategies, used by the step, the evaluation and the checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn
from torch.optim import Optimizer

from training.checkpoint.stateful import Stateful
from training.passes import Passes, StepContext
from training.precision import Precision

MakeOptimizer = Callable[[nn.Module], Optimizer]
"""Builds the optimizer of a module on its final device. A strategy calls it, because it may change the parameters first."""


class Strategy(Protocol):
    """Wraps a model, and owns its optimizer, gradients and state.

    Every rank calls the same methods in the same order; a strategy may communicate in any of them.
    """

    @property
    def module(self) -> nn.Module:
        """The bare model, or this rank's part of it under the same names; rank 0's buffers count (`synchronize_buffers`)."""
        ...

    @property
    def computes_together(self) -> bool:
        """Whether a forward pass communicates, so that every rank has to make as many of them as its peers."""
        ...

    @property
    def pass_order(self) -> int:
        """`PassOrder.digest` of the parts whose weights a pass gathers from all ranks; 0 if it gathers none."""
        ...

    @property
    def shards_state(self) -> bool:
        """Whether ranks have different parts of the state of the model or its optimizer.

        Then every rank writes its own part of a checkpoint, and reads no more than that: see `Stateful.state_dict` for what a rank
        may have, and `Partial` for how a state tells which part it wants.
        """
        ...

    @property
    def has_whole_state(self) -> bool:
        """Whether `states` of this rank are what rank 0 would write after the same step, and need no collective."""
        ...

    @property
    def parameters(self) -> int:
        """Parameters of the whole model."""
        ...

    @property
    def note(self) -> str:
        """How the model is divided, for the log; empty if there is nothing to say."""
        ...

    def passes(self, context: StepContext) -> Passes:
        """What computes the gradients of training steps."""
        ...

    def infer(self, inputs: Tensor) -> Tensor | None:
        """The outputs of the bare model, in whatever mode it is; None on a rank that does not get those of its own inputs."""
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
    def has_gradients(self) -> bool:
        """Whether the backward passes of the step gave a weight of the bare model a gradient.

        A strategy that keeps no whole gradients may answer for all steps so far.
        """
        ...

    def update(self, precision: Precision, clip_norm: float | None) -> tuple[float, bool]:
        """Clip the gradients of a step and update the weights, unless the gradients are not finite.

        Args:
            precision: of the run.
            clip_norm: largest L2 norm of the gradients of all parameters; None does not clip.

        Returns:
            The norm before clipping, and whether the weights were updated.

        Raises:
            NonFiniteLossError: the gradients overflow at every scale of fp16.
        """
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
