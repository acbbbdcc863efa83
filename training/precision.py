"""Number formats of the forward and backward pass: fp32, bf16 by autocast, fp16 by autocast with a gradient scaler.

Under fp8 autocast is that of bf16, and some layers of the model are others (`training.float8`).
"""

from __future__ import annotations

import contextlib

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from training.config.schema import PrecisionSettings
from training.errors import NonFiniteLossError

_AUTOCAST_TYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}

_SMALLEST_SCALE = 1e-4
"""Below this scale the gradient itself is infinite or NaN; the default of fairseq's --min-loss-scale."""


class Precision:
    """Wraps the parts of a step that depend on the number format; weights and optimizer state stay float32.

    Under fp16 the loss is scaled so that small gradients do not vanish, and a step whose gradients overflow is skipped
    and halves the scale (Micikevicius et al., arXiv:1710.03740). Every rank decides the same
    without communication: all see the same gradients, and an infinity or NaN of one rank survives the all-reduce.
    """

    def __init__(self, settings: PrecisionSettings, device: torch.device) -> None:
        self._device_type = device.type
        self._autocast_type = _AUTOCAST_TYPES[settings.mode]
        self._scaler = GradScaler(device.type, init_scale=settings.initial_scale) if settings.mode == "fp16" else None

    @property
    def scales_gradients(self) -> bool:
        """Whether gradients are scaled, so that a step may be skipped to find the scale."""
        return self._scaler is not None

    @property
    def scale(self) -> float:
        """Factor of the loss, and so of the gradients until `unscale_`; 1 if they are not scaled."""
        return 1.0 if self._scaler is None else self._scaler.get_scale()

    def autocast(self) -> contextlib.AbstractContextManager[object]:
        """Returns the context that the forward pass runs in; compute the loss outside it, in float32."""
        if self._autocast_type is None:
            return contextlib.nullcontext()
        return torch.autocast(self._device_type, dtype=self._autocast_type)

    def scaled(self, loss: Tensor) -> Tensor:
        """Returns `loss`, a scalar, times `scale`: what the backward pass of a step starts from."""
        return loss if self._scaler is None else self._scaler.scale(loss)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divides the gradients by the scale, before their norm is taken. At most once per step."""
        if self._scaler is not None:
            self._scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer) -> bool:
        """Updates the weights, and under fp16 the scale.

        Returns:
            True if the weights were updated, False if fp16 skipped the step because of an infinite or NaN gradient.

        Raises:
            NonFiniteLossError: the gradients overflow at every scale.
        """
        if self._scaler is None:
            optimizer.step()
            return True
        before = self._scaler.get_scale()
        self._scaler.step(optimizer)
        self._scaler.update()
        after = self._scaler.get_scale()
        if after < _SMALLEST_SCALE:
            raise NonFiniteLossError(
                f"the gradient overflows at every loss scale down to {after:.3g} (precision.mode=fp16)",
                remedy="set precision.mode=bf16, or lower optimizer.learning_rate",
            )
        return after >= before

    def state_dict(self) -> dict[str, float | int]:
        """Returns the scaler's state; empty if nothing is scaled."""
        return {} if self._scaler is None else self._scaler.state_dict()

    def load_state_dict(self, state_dict: dict[str, float | int], /) -> None:
        """Restores the scaler. State of another mode leaves fp16's scale at its initial value."""
        if self._scaler is not None and state_dict:
            self._scaler.load_state_dict(state_dict)
