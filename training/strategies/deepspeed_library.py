"""The DeepSpeed library, imported when a run needs it: it is installed apart (`make env WITH=deepspeed`) and takes seconds to import."""

from __future__ import annotations

import logging
import os
from types import SimpleNamespace
from typing import Final, Protocol, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from training.config.deepspeed import Configuration

_UNTRUE_HERE: Final = (
    # The forward pass enters autocast again, inside the engine (`training.strategies.zero`).
    "torch.autocast is enabled outside DeepSpeed",
    # SGD, which updates each weight by itself.
    "**** You are using ZeRO with an untested optimizer",
)
"""Beginnings of warnings that do not apply."""


class ZeroOptimizer(Protocol):
    """What is used here of DeepSpeed's optimizers, which are `torch.optim.Optimizer`s.

    Attributes:
        clip_grad: largest norm of the gradients of all parameters; 0 does not clip.
        bit16_groups: under stages 1 and 2, the trained parameters of each group, in whatever format.
        single_partition_of_fp32_groups: under stages 1 and 2, this rank's part of each group.
        fp16_groups, fp32_partitioned_groups_flat: the same under stage 3.
    """

    clip_grad: float
    bit16_groups: list[list[nn.Parameter]]
    single_partition_of_fp32_groups: list[Tensor]
    fp16_groups: list[list[nn.Parameter]]
    fp32_partitioned_groups_flat: list[Tensor]


class Engine(Protocol):
    """What is used here of `deepspeed.DeepSpeedEngine`, a module that calls that of the user.

    Attributes:
        optimizer: steps the parts.
        basic_optimizer: torch's, of this rank's parts.
    """

    optimizer: ZeroOptimizer
    basic_optimizer: Optimizer

    def set_gradient_accumulation_boundary(self, is_boundary: bool) -> None:  # noqa: FBT001 - DeepSpeed's signature
        """Whether the next backward pass is the last of its step."""

    def backward(self, loss: Tensor, *, scale_wrt_gas: bool) -> Tensor:
        """Add the gradients; `scale_wrt_gas` divides them by the number of micro-batches."""
        ...

    def step(self) -> None:
        """Clip and update, unless the gradients are not finite."""

    def was_step_applied(self) -> bool:
        """Whether the last step updated the weights."""
        ...

    def get_global_grad_norm(self) -> Tensor | float:
        """The norm before clipping of the last step that updated the weights."""
        ...


def initialize(module: nn.Module, optimizer: Optimizer, configuration: Configuration, device: torch.device) -> Engine:
    """DeepSpeed's engine over the default process group.

    Args:
        module: on its final device, the same on every rank.
        optimizer: of its parameters, which DeepSpeed replaces by this rank's part of them.
        configuration: what DeepSpeed would read from its JSON file.
        device: of this rank.
    """
    os.environ["DS_ACCELERATOR"] = device.type  # read when the library is imported
    os.environ.setdefault("LOCAL_RANK", str(device.index or 0))
    import deepspeed  # noqa: PLC0415
    from deepspeed.ops import __compatible_ops__ as operators  # noqa: PLC0415

    # Gloo serves as well. DeepSpeed would compile its own operator for ranks of one machine, which takes minutes.
    operators["deepspeed_shm_comm"] = False
    _log_like_others()
    engine, *_ = deepspeed.initialize(
        args=SimpleNamespace(device_rank=device.index or 0),
        model=module,
        optimizer=optimizer,
        config=configuration,
        dist_init_required=False,
    )
    return cast("Engine", engine)


def _log_like_others() -> None:
    """Send what DeepSpeed logs to the log of the rank, instead of standard output."""
    logger = logging.getLogger("DeepSpeed")
    logger.handlers.clear()
    logger.propagate = True
    logger.addFilter(_applies)


def _applies(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_UNTRUE_HERE)
