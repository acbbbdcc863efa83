"""precision.mode=fp8: the linear layers of a model's blocks multiply in 8-bit floating-point numbers, by torchao's float8 training.

For each of the three products of a layer's step, both factors are cast with a scale of their own that brings their largest value near the
format's largest: weights and inputs to e4m3, gradients of outputs to e5m2 (Micikevicius et al., arXiv:2209.05433). Sums are those of the
tensor cores, and results are bf16, in which autocast computes everything else. Weights, their gradients and the optimizer's state stay
float32 and keep their names, so that checkpoints and the exported model are those of every other mode.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import nn

from infra.spec.compute_capability import FLOAT8, written
from training.errors import SettingsError
from training.preflight import check_float8_library

_MULTIPLE: Final = 16
"""Of it the numbers of inputs and outputs must be multiples (cuBLAS documentation, "8-bit Floating Point Data Types Usage")."""


def convert_linears(module: nn.Module, device: torch.device, *, model: str, emulate: bool = False) -> str:
    """Let the linear layers between a model's first and last layer multiply in 8-bit numbers, in training and in evaluation.

    Products with a number of rows that is no multiple of 16, such as those of an epoch's short last batch, are padded with zeros.

    Args:
        module: the model on its device, before it is distributed; its layers are replaced.
        device: that it computes on.
        model: its name in the settings.
        emulate: round to 8-bit numbers, but multiply in float32: the same rounding on any device, slower than float32.

    Returns:
        what was replaced, for the log.

    Raises:
        SettingsError: the device has no 8-bit tensor cores, or the model no such layer.
        PreflightError: torchao is not installed.
    """
    if not emulate:
        _check_device(device)
    check_float8_library()
    inner = float8_layers(module)
    if not inner:
        raise SettingsError(
            f"precision.mode=fp8: model.name={model} has no linear layer between its first and its last layer whose numbers of inputs and "
            f"outputs are multiples of {_MULTIPLE}",
            remedy="set precision.mode=bf16, or make the layers' widths multiples of 16",
        )
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training  # noqa: PLC0415 - takes two seconds

    convert_to_float8_training(
        module,
        module_filter_fn=lambda _, name: name in inner,
        config=Float8LinearConfig(emulate=emulate, pad_inner_dim=True),
    )
    kept = sum(isinstance(one, nn.Linear) for one in module.modules()) - len(inner)
    return f"precision.mode=fp8: {len(inner)} linear layers multiply in fp8, {kept} in bf16"


def float8_layers(module: nn.Module) -> frozenset[str]:
    """Names of the linear layers that can, without the model's first and last layer.

    These two are in the order in which the model names its layers with a matrix or more: usually an embedding or a convolution, and the
    head. Their errors reach all others, or no other corrects them; every published recipe of fp8 leaves them out.
    """
    layers = [
        (name, one)
        for name, one in module.named_modules()
        if not list(one.children()) and any(weight.dim() > 1 for weight in one.parameters(recurse=False))
    ]
    return frozenset(
        name
        for name, one in layers[1:-1]
        # The exact class: others, such as that of nn.MultiheadAttention, use the weights without calling the layer.
        if type(one) is nn.Linear and one.in_features % _MULTIPLE == 0 and one.out_features % _MULTIPLE == 0
    )


def _check_device(device: torch.device) -> None:
    remedy = "set precision.mode=bf16, or train on GPUs such as L4, L40S, H100 or B200"
    if device.type != "cuda":
        raise SettingsError(f"precision.mode=fp8 needs a GPU, and this rank computes on {device}", remedy=remedy)
    capability = torch.cuda.get_device_capability(device)
    if capability < FLOAT8:
        raise SettingsError(
            f"precision.mode=fp8 needs GPUs of compute capability {written(FLOAT8)} or higher; {torch.cuda.get_device_name(device)} has "
            f"{written(capability)}",
            remedy=remedy,
        )
