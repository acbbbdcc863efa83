"""Multi-layer perceptron. With the defaults and 784 inputs: the classic 784-512-10, 407,050 parameters."""

from __future__ import annotations

import math
from itertools import pairwise

from torch import nn

from training.data.types import SampleSpec
from training.models.inputs import refuse_tokens
from training.models.options import MlpOptions


def mlp(spec: SampleSpec, options: MlpOptions) -> nn.Sequential:
    """Builds fully connected layers, each hidden one followed by ReLU and dropout.

    Args:
        spec: samples of any shape; they are flattened.
        options: hidden widths and dropout.

    Returns:
        A module from float (n, *spec.shape) to logits or values (n, spec.outputs).

    Raises:
        SettingsError: the samples are tokens.
    """
    refuse_tokens(spec, model="mlp")
    widths = (math.prod(spec.shape), *options.hidden)
    layers: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU(inplace=True), nn.Dropout(options.dropout)]
    return nn.Sequential(*layers, nn.Linear(widths[-1], spec.outputs))
