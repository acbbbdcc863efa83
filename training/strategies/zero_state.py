"""Checkpoints under ZeRO: whole tensors by the names that they have under DDP, so that a run may continue under another strategy.

DeepSpeed flattens the weights of a parameter group and gives each rank an equal part, with its part of the optimizer's state. A tensor is
gathered, or cut into parts, one at a time.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from training.checkpoint.sharding import NamedTensors
from training.checkpoint.state import check_fits, check_optimizer
from training.errors import ResumeMismatchError
from training.strategies.deepspeed_library import Engine

_STEP = "step"


class Partitions:
    """The parts of weights and optimizer state that DeepSpeed's ZeRO keeps on this rank, as whole tensors."""

    def __init__(self, engine: Engine, *, stage: int) -> None:
        """Read and write the parts of an engine.

        Args:
            engine: of DeepSpeed.
            stage: of ZeRO: 1, 2 or 3.
        """
        self._zero = engine.optimizer
        self._has_whole_weights = stage < 3
        self.optimizer = engine.basic_optimizer

    def flat(self) -> list[tuple[Tensor, list[nn.Parameter]]]:
        """This rank's part of each group of trained parameters, float32 and flat, and the parameters."""
        if self._has_whole_weights:
            return list(zip(self._zero.single_partition_of_fp32_groups, self._zero.bit16_groups, strict=True))
        return list(zip(self._zero.fp32_partitioned_groups_flat, self._zero.fp16_groups, strict=True))

    def weight(self, parameter: nn.Parameter) -> Tensor:
        """A whole weight, in float32, on every rank. A collective."""
        from deepspeed import zero  # noqa: PLC0415
        from deepspeed.utils import safe_get_full_fp32_param  # noqa: PLC0415

        if self._has_whole_weights and (parameter.dtype == torch.float32 or not parameter.requires_grad):
            return parameter.detach().float()
        if parameter.requires_grad:
            found: Tensor = safe_get_full_fp32_param(parameter)
            return found
        with zero.GatheredParameters([parameter]):
            return parameter.detach().to(torch.float32, copy=True)

    def set_weight(self, parameter: nn.Parameter, value: Tensor) -> None:
        """Load a whole weight, which every rank has. A collective."""
        from deepspeed import zero  # noqa: PLC0415
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_local_fp32_param  # noqa: PLC0415

        if self._has_whole_weights:
            parameter.data.copy_(value)
            if parameter.requires_grad:
                safe_set_full_fp32_param(parameter, value)
            return
        with zero.GatheredParameters([parameter], modifier_rank=0):
            parameter.data.copy_(value)
        if parameter.requires_grad:
            safe_set_local_fp32_param(parameter, _own_part(parameter, value))

    def moment(self, parameter: nn.Parameter, key: str) -> Tensor:
        """A whole tensor of the optimizer's state, on every rank. A collective, after `link`."""
        from deepspeed.utils import safe_get_full_optimizer_state  # noqa: PLC0415

        found: Tensor = safe_get_full_optimizer_state(parameter, key)
        return found

    def set_moment(self, parameter: nn.Parameter, key: str, value: Tensor) -> None:
        """Load a whole tensor of the optimizer's state, after `link`."""
        from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state  # noqa: PLC0415

        if self._has_whole_weights:
            safe_set_full_optimizer_state(parameter, value, key)
        else:
            safe_set_local_optimizer_state(parameter, _own_part(parameter, value), key)

    def link(self, flat: Tensor, parameters: list[nn.Parameter]) -> None:
        """Let parameters know the optimizer's state of their part: DeepSpeed does it once, after it has updated the first group."""
        if self._has_whole_weights:
            for mapping in (parameter._hp_mapping for parameter in parameters):  # type: ignore[attr-defined] # noqa: SLF001
                if mapping is not None:
                    mapping.set_optim_state_fragment(flat, self.optimizer.state[flat])


class ZeroModelState:
    """Parameters and persistent buffers of a model under ZeRO."""

    def __init__(self, module: nn.Module, partitions: Partitions, *, described: nn.Module) -> None:
        """Save and load a model.

        Args:
            module: the bare model, whose parameters DeepSpeed has.
            partitions: of it.
            described: a copy, on any device, with the shapes and types that a checkpoint has.
        """
        self._module = module
        self._partitions = partitions
        self._described = described

    def state_dict(self) -> NamedTensors:
        """The tensors by name, whole on rank 0; those of its peers are empty. A collective."""
        return {
            name: _on_rank_0(self._partitions.weight(value)) if isinstance(value, nn.Parameter) else value
            for name, value in self._module.state_dict(keep_vars=True).items()
        }

    def load_state_dict(self, state_dict: NamedTensors, /) -> None:
        """Copy weights and buffers into the model.

        Raises:
            ResumeMismatchError: the model's tensors have other names, shapes or types; it is left as it was.
        """
        check_fits(state_dict, self._described.state_dict())
        for name, live in self._module.state_dict(keep_vars=True).items():
            value = state_dict[name].to(live.device)
            if isinstance(live, nn.Parameter):
                self._partitions.set_weight(live, value)
            else:
                live.copy_(value)


class ZeroOptimizerState:
    """The optimizer's tensors per parameter, and its class, as `training.checkpoint.state.OptimizerState` has them."""

    def __init__(self, module: nn.Module, partitions: Partitions) -> None:
        self._module = module
        self._partitions = partitions

    def state_dict(self) -> dict[str, Any]:
        """The tensors as `key/parameter`, whole on rank 0, and the optimizer's class name as `class`. A collective."""
        names, optimizer = self._names(), self._partitions.optimizer
        state: dict[str, Any] = {"class": type(optimizer).__name__}
        for flat, parameters in self._partitions.flat():
            own = optimizer.state.get(flat, {})
            self._partitions.link(flat, parameters)
            for parameter in parameters:
                for key, value in own.items():
                    whole = value if key == _STEP else _on_rank_0(self._partitions.moment(parameter, key))
                    state[f"{key}/{names[parameter]}"] = whole
        return state

    def load_state_dict(self, state_dict: dict[str, Any], /) -> None:
        """Load the tensors. The optimizer keeps its hyperparameters.

        Raises:
            ResumeMismatchError: they belong to an optimizer of another class, or the parameters have done unequal numbers of steps.
        """
        by_parameter = check_optimizer(state_dict, self._partitions.optimizer)
        names = self._names()
        for flat, parameters in self._partitions.flat():
            saved = {parameter: by_parameter.get(names[parameter], {}) for parameter in parameters}
            self._prepare(flat, list(saved.values()))
            self._partitions.link(flat, parameters)
            for parameter, moments in saved.items():
                for key, value in moments.items():
                    if key != _STEP:
                        self._partitions.set_moment(parameter, key, value.to(flat.device))

    def _prepare(self, flat: Tensor, saved: list[dict[str, Tensor]]) -> None:
        """Make the state of a part, with zeros, as the optimizer would in its first step."""
        optimizer = self._partitions.optimizer
        steps = [moments[_STEP] for moments in saved if _STEP in moments]
        if len({float(step) for step in steps}) > 1:
            raise ResumeMismatchError(
                "its parameters have done unequal numbers of steps, and ZeRO counts them together",
                remedy="set strategy.name=ddp or fsdp2, or start a new run under another run.name",
            )
        state = optimizer.state[flat]
        for key in {key for moments in saved for key in moments} - {_STEP}:
            state[key] = torch.zeros_like(flat, requires_grad=False)
        if steps:  # which a fused optimizer keeps beside its tensors
            state[_STEP] = steps[0].to(flat.device if optimizer.defaults.get("fused") else "cpu")

    def _names(self) -> dict[nn.Parameter, str]:
        """The names of the parameters in the model; of tied ones the first."""
        live = self._module.state_dict(keep_vars=True)
        return {value: name for name, value in reversed(live.items()) if isinstance(value, nn.Parameter)}


def _own_part(parameter: nn.Parameter, value: Tensor) -> Tensor:
    """This rank's part of a whole tensor under stage 3, flat and float32; the last one is padded with zeros."""
    size: int = parameter.ds_tensor.numel()  # type: ignore[attr-defined]
    flat = value.flatten().float()
    padded = nn.functional.pad(flat, (0, size * dist.get_world_size() - flat.numel()))
    return padded.narrow(0, size * dist.get_rank(), size)


def _on_rank_0(tensor: Tensor) -> Tensor:
    """A tensor in rank 0's host memory; its peers keep none, as in `training.checkpoint.sharding.whole`."""
    return tensor.cpu() if dist.get_rank() == 0 else torch.empty(0, dtype=tensor.dtype)
