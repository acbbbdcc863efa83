"""ZeRO through DeepSpeed: each rank keeps a part of the optimizer's state (stage 1), of the gradients too (2), of the weights too (3).

The paper is Rajbhandari et al., arXiv:1910.02054. DeepSpeed runs the backward pass, the reduction and the update; batches, the loss, the
learning rate and checkpoints are those of every strategy. Gradients are averaged over the ranks, and summed over micro-batches: DeepSpeed's
division by the number of micro-batches is left out, because the step divides the loss by the global batch (`training.step`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.optim import Optimizer

from observability.quantities import listed
from training.checkpoint.stateful import Stateful
from training.config.deepspeed import STAGES, engine_configuration
from training.config.schema import TrainingSettings
from training.errors import SettingsError
from training.passes import OneByOne, Passes, StepContext
from training.precision import Precision
from training.strategies import deepspeed_library
from training.strategies.buffers import FromBuffersOfRank0, copy_from_rank_0
from training.strategies.skeleton import assembled, skeleton_of
from training.strategies.strategy import MakeOptimizer
from training.strategies.zero_state import Partitions, ZeroModelState, ZeroOptimizerState


class Zero:
    """ZeRO over all ranks of the process group. Buffers are not divided: as under DDP, those of rank 0 count."""

    note = ""
    has_whole_state = False
    shards_state = False
    pass_order = 0  # stage 3 gathers every weight by itself, so that ranks which differ wait for each other

    def __init__(
        self, module: nn.Module, make_optimizer: MakeOptimizer, *, settings: TrainingSettings, device: torch.device
    ) -> None:
        stage = STAGES[settings.strategy.name]
        self.averaged_ranks = dist.get_world_size()
        self.computes_together = stage == STAGES["zero3"]
        self.has_gradients = False
        self._skeleton = skeleton_of(module)
        self._name = settings.strategy.name
        self._trained = {id(one): name for name, one in module.named_parameters() if one.requires_grad}
        if settings.precision.mode == "bf16":
            _compute_in_bf16(module, device)
        self._engine = deepspeed_library.initialize(
            module, make_optimizer(module), engine_configuration(settings), device
        )
        self._engine.set_gradient_accumulation_boundary(True)  # instead of DeepSpeed's own count of micro-batches
        self.module = module
        self.model = cast("nn.Module", self._engine)
        self.optimizer = cast("Optimizer", self._engine.optimizer)
        partitions = Partitions(self._engine, stage=stage)
        self._model_state = ZeroModelState(module, partitions, described=self._skeleton)
        self._optimizer_state = ZeroOptimizerState(module, partitions)

    @property
    def parameters(self) -> int:
        """Parameters of the model, all parts together."""
        return sum(one.numel() for one in self._skeleton.parameters())

    def passes(self, context: StepContext) -> Passes:
        """One micro-batch after the other."""
        return FromBuffersOfRank0(OneByOne(self, context), self.module)

    def infer(self, inputs: Tensor) -> Tensor:
        """The outputs of the model; stage 3 gathers its weights."""
        outputs: Tensor = self.module(inputs)
        return outputs

    def compile(self, mode: str) -> None:
        """Refused by the settings."""
        raise AssertionError(f"compute.compile={mode} under ZeRO")

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        """Stage 1 reduces nothing before the last micro-batch; stages 2 and 3 reduce each to the parts, and add them up there."""
        self._engine.set_gradient_accumulation_boundary(False)
        try:
            yield
        finally:
            self._engine.set_gradient_accumulation_boundary(True)

    def backward(self, loss: Tensor) -> None:
        """Add the gradients, which DeepSpeed takes from the parameters and reduces to the parts.

        Raises:
            SettingsError: the first pass does not use a weight that is trained: DeepSpeed would take its gradient for zeros and decay it.
        """
        if not self.has_gradients:
            reached = _reached(loss)
            self.has_gradients = not reached.isdisjoint(self._trained)
            if unused := [name for one, name in self._trained.items() if one not in reached]:
                self._refuse(unused)
        if self.has_gradients:
            self._engine.backward(loss, scale_wrt_gas=False)

    def _refuse(self, unused: list[str]) -> None:
        """Refuse weights that a pass does not use; if it uses none, the objective is at fault, and the step says so."""
        if self.has_gradients:
            raise SettingsError(
                f"strategy.name={self._name}: the first step does not use {listed(unused)}",
                remedy="freeze them (requires_grad_(False)) or use them in every step, and set use_reentrant=False for "
                "torch.utils.checkpoint, which would hide them; strategy.name=fsdp2 leaves them as they are",
            )

    def update(
        self,
        precision: Precision,  # noqa: ARG002 - fp16, which has steps of its own, is refused
        clip_norm: float | None,
    ) -> tuple[float, bool]:
        """Clip and update. The norm of a step that is skipped is infinite: DeepSpeed does not tell a NaN apart."""
        self._engine.optimizer.clip_grad = clip_norm or 0.0
        self._engine.step()
        if not self._engine.was_step_applied():
            return math.inf, False
        return float(self._engine.get_global_grad_norm()), True

    def synchronize_buffers(self) -> None:
        """Copy rank 0's buffers to its peers."""
        copy_from_rank_0(self.module)

    def whole_module(self) -> nn.Module:
        """On rank 0 a copy with whole weights in float32, in host memory; on its peers the module."""
        state = self._model_state.state_dict()
        return self.module if dist.get_rank() else assembled(self._skeleton, state, live=self.module)

    def states(self) -> dict[str, Stateful]:
        """The whole state of the model and of its optimizer."""
        return {"model": self._model_state, "optimizer": self._optimizer_state}


def _compute_in_bf16(module: nn.Module, device: torch.device) -> None:
    """Enter autocast inside DeepSpeed's engine, which leaves that of its caller."""
    setattr(module, "forward", torch.autocast(device.type, dtype=torch.bfloat16)(module.forward))  # noqa: B010


def _reached(loss: Tensor) -> set[int]:
    """The tensors, by id, that a loss has a gradient for. DeepSpeed keeps no gradient to ask for."""
    seen, reached = set[Node](), set[int]()
    waiting = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            reached.add(id(node.variable))
        waiting += [before for before, _ in node.next_functions]
    return reached
