"""A model whose step takes a given time, in which the CPUs are idle, as they are while a GPU computes."""

from __future__ import annotations

import time

from torch import nn

from training.config.schema import ModelSettings
from training.data.types import SampleSpec
from training.models import registry as models


def build_paced_model(
    spec: SampleSpec, *, network: str, seconds: float, **options: bool | float | str | None
) -> nn.Module:
    """Build the model `network` with its `options`, whose forward pass takes `seconds` more while it trains."""
    module = models.build_model(ModelSettings.model_validate({"name": network, "options": options}), spec)

    def wait(module: nn.Module, _: object) -> None:
        if module.training:
            time.sleep(seconds)

    module.register_forward_pre_hook(wait)
    return module
