"""DiLoCo's outer optimizer (Douillard et al., arXiv:2311.08105, algorithm 1): SGD with Nesterov momentum on what the ranks have learned.

The outer weights are those that all ranks had after the average before. The ranks then train alone for H steps; the outer gradient is the
outer weights minus the mean of the ranks' weights. With learning rate 1 and without momentum the new weights are that mean: local SGD.

The state is the same on every rank, because all compute it from the same mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD

from training.checkpoint.sharding import NamedTensors
from training.config.schema import CommunicationSettings
from training.errors import ResumeMismatchError

_MOMENTUM = "momentum_buffer"
"""Where torch's SGD keeps it."""


class OuterOptimizer:
    """Keeps the outer weights of a module and their momentum."""

    def __init__(self, module: nn.Module, settings: CommunicationSettings) -> None:
        """Args: `module` is the bare model on its final device."""
        self._live = {name: value for name, value in module.named_parameters() if value.requires_grad}
        self._outer: NamedTensors = {}
        self._sgd: SGD | None = None
        self._settings = settings

    @property
    def has_started(self) -> bool:
        """Whether there are outer weights."""
        return self._sgd is not None

    def start(self) -> None:
        """Take the module's weights, which are the same on every rank, as the first outer weights."""
        self._use({name: value.detach().clone() for name, value in self._live.items()})

    @torch.no_grad()
    def step(self) -> None:
        """Move the outer weights towards the module's, which are the mean of the ranks', and give them to the module."""
        assert self._sgd is not None, "the outer optimizer has not started"
        for name, outer in self._outer.items():
            outer.grad = outer - self._live[name]
        self._sgd.step()
        for name, outer in self._outer.items():
            self._live[name].copy_(outer)
            outer.grad = None

    def state_dict(self) -> NamedTensors:
        """The outer weights as `weight/name`, and their momentum as `momentum/name`; empty before `start`."""
        if self._sgd is None:
            return {}
        momentum = {name: self._sgd.state[outer].get(_MOMENTUM) for name, outer in self._outer.items()}
        return {
            **{f"weight/{name}": outer for name, outer in self._outer.items()},
            **{f"momentum/{name}": value for name, value in momentum.items() if value is not None},
        }

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Load both, to the device of the module.

        Raises:
            ResumeMismatchError: the outer weights are not those of the module's trained parameters.
        """
        kinds: dict[str, dict[str, Tensor]] = {"weight": {}, "momentum": {}}
        for key, value in state_dict.items():
            kind, _, name = key.partition("/")
            kinds[kind][name] = value
        if different := sorted(kinds["weight"].keys() ^ self._live.keys()):
            raise ResumeMismatchError(
                f"its outer weights are those of other parameters: {different[0]} differs",
                remedy="train the same parameters, set communication.outer_optimizer=none, or start a new run under another run.name",
            )
        self._use({name: torch.empty_like(live).copy_(kinds["weight"][name]) for name, live in self._live.items()})
        assert self._sgd is not None
        for name, value in kinds["momentum"].items():
            outer = self._outer[name]
            self._sgd.state[outer][_MOMENTUM] = torch.empty_like(outer).copy_(value)

    def _use(self, outer: NamedTensors) -> None:
        settings = self._settings
        self._outer = {name: value.detach() for name, value in outer.items()}
        self._sgd = SGD(
            self._outer.values(),
            lr=settings.outer_learning_rate,
            momentum=settings.outer_momentum,
            nesterov=settings.outer_momentum > 0,
        )
