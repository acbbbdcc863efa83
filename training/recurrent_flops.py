"""The FLOPs of recurrent layers, whose fused operators torch's counter ignores.

At each position of each sequence a layer multiplies its inputs and its state by their matrices: two FLOPs for each weight. The backward
pass computes two products for each of the forward pass, as of a linear layer. Biases and the gates' elementwise operations count 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

_MATRIX = 2
"""Dimensions of a matrix; biases have one."""


def recurrent_formulas() -> Mapping[object, Callable[..., int]]:
    """The formulas by operator: oneDNN's for CPUs, of one layer and direction, and cuDNN's, of all layers."""
    aten = torch.ops.aten
    return {
        aten.mkldnn_rnn_layer: _of_a_layer,
        aten.mkldnn_rnn_layer_backward: _of_a_layers_gradients,
        aten._cudnn_rnn: _of_all_layers,  # noqa: SLF001 - the operator has no other name
        aten._cudnn_rnn_backward: _of_all_gradients,  # noqa: SLF001
    }


def _of_a_layer(inputs: Tensor, *weights: Tensor, **_: object) -> int:
    """`inputs`: (length, n, width), or (n, length, width); the first four `weights` are matrices and biases, states follow."""
    return 2 * inputs.shape[0] * inputs.shape[1] * _matrices(weights[:4])


def _of_a_layers_gradients(inputs: Tensor, *weights: Tensor, **_: object) -> int:
    return 2 * _of_a_layer(inputs, *weights)


def _of_all_layers(inputs: Tensor, weights: Sequence[Tensor], *_: object, **__: object) -> int:
    return 2 * inputs.shape[0] * inputs.shape[1] * _matrices(weights)


def _of_all_gradients(inputs: Tensor, weights: Sequence[Tensor], *_: object, **__: object) -> int:
    return 2 * _of_all_layers(inputs, weights)


def _matrices(weights: Sequence[Tensor]) -> int:
    """The number of weights in matrices."""
    return sum(one.numel() for one in weights if one.dim() == _MATRIX)
