"""The exponential moving average of a model's weights (EMA), kept beside the weights that are trained.

After step n every value moves towards that of the model: average = d · average + (1 - d) · value, with d = min(decay, (1 + n) / (10 + n)).
The second term lets the average follow the first steps, whose values would otherwise stay in it for thousands of steps (TensorFlow,
`tf.train.ExponentialMovingAverage`, `num_updates`). It is a function of the step: nothing but the average itself is state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from training.checkpoint.sharding import NamedTensors, own_part
from training.errors import ResumeMismatchError, SettingsError
from training.live_buffers import LiveBuffers


class WeightAverage:
    """The average of a module's trained parameters and of its floating-point buffers, e.g. batch norm's running statistics.

    Args:
        module: the bare model, on its final device; tied parameters count once.
        decay: see above, from 0 to 1.

    Raises:
        SettingsError: a weight has 16 bits, of which a small step towards another value changes none.
    """

    def __init__(self, module: nn.Module, *, decay: float) -> None:
        self._decay = decay
        self._trained: dict[str, Tensor] = {
            name: value for name, value in module.named_parameters() if value.requires_grad
        }
        for name, value in self._trained.items():
            if value.dtype in {torch.bfloat16, torch.float16}:
                raise SettingsError(
                    f"ema.decay={decay:g}: {name} has the type {value.dtype}, in which its average would stand still",
                    remedy="build the model in float32; precision.mode=bf16 computes in bf16 with weights in float32",
                )
        self._buffers = LiveBuffers(module)
        self._averages: dict[str, Tensor] = {}

    @property
    def _live(self) -> dict[str, Tensor]:
        return {**self._trained, **{name: one for name, one in self._buffers.now() if one.is_floating_point()}}

    @torch.no_grad()
    def start(self) -> None:
        """Start from the module's values, unless `load_state_dict` has loaded an average."""
        if not self._averages:
            self._averages = {name: value.detach().clone() for name, value in self._live.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the values after optimizer step `step`, counted from 1."""
        decay = min(self._decay, (1 + step) / (10 + step))
        for name, value in self._buffers.now():
            if name in self._averages and self._averages[name].shape != value.shape:  # such as a queue that grows
                self._averages[name] = value.detach().clone()
        averages, live = ([own_part(value) for value in one.values()] for one in (self._averages, self._live))
        torch._foreach_lerp_(averages, live, 1 - decay)

    @contextmanager
    def in_model(self) -> Iterator[None]:
        """The context in which the module has the average, to evaluate or export it."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for name, live in self._live.items():
            value = live.detach().clone()
            live.copy_(self._averages[name])
            self._averages[name].copy_(value)

    def state_dict(self) -> NamedTensors:
        """The live averages by the names of the module's tensors; empty before `start`."""
        return self._averages

    def tensors_to_load(self, saved: NamedTensors, /) -> NamedTensors:
        """New tensors on the device of the module's, sharded as they are.

        Raises:
            ResumeMismatchError: the averages are those of another model.
        """
        for name, live in sorted(self._live.items()):
            if name not in saved or saved[name].shape != live.shape:
                raise ResumeMismatchError(
                    f"its average of the weights is of another model: {name} differs",
                    remedy="set model.name and model.options back, or start a new run under another run.name",
                )
        return {
            name: torch.empty_like(live, dtype=saved[name].dtype, requires_grad=False)
            for name, live in self._live.items()
        }

    def load_state_dict(self, state_dict: NamedTensors, /) -> None:
        """Keep the averages of `tensors_to_load`."""
        self._averages = dict(state_dict)
