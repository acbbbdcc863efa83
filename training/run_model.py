"""The model of a run as each of its processes builds it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from training.compute import arranged
from training.config.schema import TrainingSettings
from training.data.types import SampleSpec
from training.float8 import convert_linears
from training.models.own import prepare_own_model
from training.models.registry import build_model


def build_run_model(
    settings: TrainingSettings, spec: SampleSpec, device: torch.device, *, report: Callable[[str], None]
) -> nn.Module:
    """The bare model with its initial weights, in the number format and the memory order of the settings.

    Args:
        settings: of the run.
        spec: of the samples.
        device: where the model is put.
        report: called with what a person should know.

    Raises:
        SettingsError: the model does not fit the samples or the settings.
    """
    # A user's own dataset may have drawn from the global generators; the weights must not depend on that.
    torch.manual_seed(settings.run.seed)
    module = build_model(settings.model, spec).to(device)
    prepare_own_model(module, settings.model, spec)
    module = arranged(module, settings.compute, spec)
    if settings.precision.mode == "fp8":
        report(convert_linears(module, device, model=settings.model.name))
    return module
