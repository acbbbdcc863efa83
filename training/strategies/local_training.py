"""Local SGD and DiLoCo: every rank trains alone for some steps, then all continue from the average of their weights.

Until `communication.start_step` every step is DDP's. From then on a rank has its own weights between two averages, and its own optimizer
state and buffers from then on: to average Adam's moments too would send three times as much, with no gain that DiLoCo's authors report
(arXiv:2311.08105). The model of the run is at every step the mean of the ranks':

* It is what evaluations measure, checkpoints hold under the usual names, and the export contains; the ranks continue with their own.
* A checkpoint has in addition what every rank has of its own. With as many ranks a run resumes bit for bit, from any step; another
  number of ranks, and another strategy, starts from the mean.
* So neither evaluations nor checkpoints, nor stops between two averages, have an effect on the weights.

Between two averages the ranks still exchange the few numbers of a window (`training.step_reducer`), at most four times a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.func import functional_call

from training.checkpoint.sharding import NamedTensors
from training.checkpoint.state import ModelState, OptimizerState
from training.checkpoint.stateful import Stateful
from training.communication.outer_optimizer import OuterOptimizer
from training.communication.ranks import load_optimizer, mean_over_ranks, of_all_ranks
from training.communication.weight_averager import WeightAverager
from training.config.schema import CommunicationSettings
from training.errors import NonFiniteLossError
from training.models.trial_copy import copy_of
from training.precision import Precision
from training.strategies.data_parallel import DataParallel
from training.strategies.strategy import MakeOptimizer

_MODEL, _OPTIMIZER = "model/", "optimizer/"


class LocalTraining(DataParallel):
    """DDP for the first steps, then ranks that train alone between averages of their weights."""

    def __init__(
        self,
        module: nn.Module,
        make_optimizer: MakeOptimizer,
        *,
        device: torch.device,
        communication: CommunicationSettings,
        ranks_per_node: int | None = None,
    ) -> None:
        super().__init__(module, make_optimizer, device=device, communication=communication)
        self._start_step = communication.start_step
        self._averager = WeightAverager(communication, ranks_per_node=ranks_per_node)
        self._outer = OuterOptimizer(module, communication) if communication.outer_optimizer == "nesterov" else None
        self._local_step = 0
        self._evaluated: NamedTensors = {}
        self._own = _OwnState(self, device)

    def start_step(self, step: int, *, scale: float) -> None:
        """Let DDP sum the gradients, or not."""
        del scale
        self._evaluated = {}
        self._own.buffers_differ = True
        self._local_step = max(0, step - self._start_step)
        self._parallel.require_backward_grad_sync = self._local_step == 0
        if self._local_step > 0 and self._outer is not None and not self._outer.has_started:
            # A run that resumes with an outer optimizer may do so between two averages.
            give_to(self.module, self._own.means())
            self._own.weights_differ = False
            self._outer.start()

    def update(self, precision: Precision, clip_norm: float | None) -> tuple[float, bool]:
        """Clip by the norm of the rank's own gradients, step, and average the weights if that is due.

        Raises:
            NonFiniteLossError: this rank's gradients are not finite. Its peers know nothing of it, so that it may not wait for them.
        """
        norm, applied = super().update(precision, clip_norm)
        if not applied and self._local_step > 0:
            raise NonFiniteLossError(
                f"step {self._start_step + self._local_step}: the gradient of rank {dist.get_rank()}, which trains alone, is not finite "
                f"(norm {norm})",
                remedy="lower optimizer.learning_rate, or average more often (communication.local_steps); the newest checkpoint is from "
                "before this step",
            )
        return norm, applied

    def end_step(self, *, applied: bool) -> None:
        """Average the weights if that is due."""
        if self._local_step == 0 or not applied:
            return
        self._own.optimizers_differ = True
        is_same = self._averager.average(self._parameters, self._local_step)
        if is_same and self._outer is not None:
            self._outer.step()
        self._own.weights_differ = not is_same

    def synchronize_buffers(self) -> None:
        """Take the mean of the ranks' models for `infer`; the module keeps what this rank has, buffers too."""
        self._evaluated = self._own.means()

    def infer(self, inputs: Tensor) -> Tensor:
        """The outputs of the mean that `synchronize_buffers` took."""
        outputs: Tensor = functional_call(self.module, self._evaluated, (inputs,))
        return outputs

    def whole_module(self) -> nn.Module:
        """On rank 0 a copy of the bare model that is the mean of the ranks'; on its peers their own."""
        means = self._own.means()
        if dist.get_rank() > 0:
            return self.module
        copied = copy_of(self.module)
        give_to(copied, means)
        return copied

    @property
    def has_whole_state(self) -> bool:
        """Never: between two averages each rank has weights of its own."""
        return False

    def states(self) -> dict[str, Stateful]:
        """The means, what each rank has of its own, which is loaded after them, and the outer optimizer's state."""
        states: dict[str, Stateful] = {
            "model": _MeanModelState(self.module, self._own),
            "optimizer": _MeanOptimizerState(self._own, self),
            "ranks": self._own,
        }
        return states if self._outer is None else {**states, "outer_optimizer": self._outer}


@torch.no_grad()
def give_to(module: nn.Module, values: NamedTensors) -> None:
    """Copy values into the parameters and buffers of a module."""
    live = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, value in values.items():
        live[name].copy_(value)


class _OwnState:
    """What a rank has of its own.

    Attributes:
        buffers_differ: those of the ranks are not the same.
        weights_differ: nor are their weights.
        optimizers_differ: nor are the states of their optimizers.
    """

    def __init__(self, strategy: LocalTraining, device: torch.device) -> None:
        module = self._module = strategy.module
        self.buffers_differ = self.weights_differ = self.optimizers_differ = False
        self._weights: NamedTensors = {name: one for name, one in module.named_parameters() if one.requires_grad}
        self._buffers: NamedTensors = {name: one for name, one in module.named_buffers() if one.is_floating_point()}
        self._optimizer = OptimizerState(strategy.optimizer, module)
        self._optimizer_class = type(strategy.optimizer).__name__
        self._mesh = init_device_mesh(device.type, (dist.get_world_size(),))

    def differing(self) -> NamedTensors:
        """The live tensors of the module that this rank has of its own."""
        return {**(self._weights if self.weights_differ else {}), **(self._buffers if self.buffers_differ else {})}

    def means(self) -> NamedTensors:
        """Their means. Every rank calls it."""
        return mean_over_ranks(self.differing())

    def state_dict(self) -> dict[str, Any]:
        """As `model/name` and `optimizer/key/name`, (ranks, *shape) and sharded over the ranks; empty where nothing differs."""
        own = {_MODEL + name: value for name, value in self.differing().items()}
        if self.optimizers_differ:
            state = self._optimizer.state_dict()
            own |= {_OPTIMIZER + name: value for name, value in state.items() if isinstance(value, Tensor)}
        return {name: of_all_ranks(value, self._mesh) for name, value in own.items()}

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Load what this rank had. That of another number of ranks is of no use: the means are loaded."""
        world, rank = dist.get_world_size(), dist.get_rank()
        own = {name: value[rank].clone() for name, value in state_dict.items() if len(value) == world}
        weights = {name.removeprefix(_MODEL): value for name, value in own.items() if name.startswith(_MODEL)}
        moments = {name.removeprefix(_OPTIMIZER): value for name, value in own.items() if name.startswith(_OPTIMIZER)}
        give_to(self._module, weights)
        self.buffers_differ = not self._buffers.keys().isdisjoint(weights)
        self.weights_differ = not self._weights.keys().isdisjoint(weights)
        if moments:
            load_optimizer(self._optimizer, {"class": self._optimizer_class, **moments})
            self.optimizers_differ = True


class _MeanModelState(ModelState):
    """The mean of the ranks' models."""

    def __init__(self, module: nn.Module, own: _OwnState) -> None:
        super().__init__(module)
        self._own = own

    def state_dict(self) -> NamedTensors:
        """The means under the names of the module's tensors. A collective."""
        means = self._own.means()
        of_tensor = {id(value): means[name] for name, value in self._own.differing().items()}
        return {name: of_tensor.get(id(value), value) for name, value in super().state_dict().items()}


class _MeanOptimizerState(OptimizerState):
    """The mean of the ranks' optimizer states, for another number of ranks to start from."""

    def __init__(self, own: _OwnState, strategy: LocalTraining) -> None:
        super().__init__(strategy.optimizer, strategy.module)
        self._own = own

    def state_dict(self) -> dict[str, Any]:
        """The means of all but the number of steps, which is the same on every rank. A collective."""
        live = super().state_dict()
        if not self._own.optimizers_differ:
            return live
        moments = {key: one for key, one in live.items() if isinstance(one, Tensor) and not key.startswith("step/")}
        return {**live, **mean_over_ranks(moments)}
