"""A model of a user that does not fit its samples."""

from __future__ import annotations

from torch import nn

from training.data.types import SampleSpec


def too_narrow(spec: SampleSpec) -> nn.Module:
    """One output less than there are classes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, spec.outputs - 1))
