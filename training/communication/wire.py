"""Which bytes a communication hook sends: the policy of the hooks, as arithmetic on the shapes of the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import Tensor

from training.config.schema import CommunicationSettings

_HALF = 2
"""Bytes of a value in fp16 and bf16."""


def factor_shape(parameter: Tensor, settings: CommunicationSettings) -> tuple[int, int, int] | None:
    """Rows, columns and rank of a weight's gradient as a matrix; None if PowerSGD sends it whole.

    The rows are the first dimension, the columns all others. torch's `powerSGD_hook` sends (rows + columns) x rank values where that is
    smaller by `min_compression_rate` than rows x columns.
    """
    if parameter.dim() == 0:
        return None
    rows = parameter.shape[0]
    columns = math.prod(parameter.shape[1:])
    rank = min(rows, columns, settings.rank)
    compressed = (rows + columns) * rank
    return (rows, columns, rank) if compressed * settings.min_compression_rate < rows * columns else None


def bytes_sent(parameters: Iterable[Tensor], settings: CommunicationSettings) -> int:
    """Bytes that a rank gives to the all-reduces of a step; of PowerSGD from the step on at which it starts."""
    return sum(_bytes_of(parameter, settings) for parameter in parameters)


def describe(parameters: Iterable[Tensor], settings: CommunicationSettings) -> str:
    """What a hook saves, for the user."""
    trained = list(parameters)
    whole, sent = sum(one.nbytes for one in trained), bytes_sent(trained, settings)
    begins = f" from step {settings.start_step + 1} on" if settings.hook == "powersgd" else ""
    return (
        f"communication.hook={settings.hook} reduces the {whole / 1e6:.3g} MB of a step's gradients to {sent / 1e6:.3g} MB"
        f" (1 : {whole / sent:.3g}){begins}"
    )


def _bytes_of(parameter: Tensor, settings: CommunicationSettings) -> int:
    if settings.hook in {"fp16", "bf16"}:
        return parameter.numel() * _HALF
    shape = factor_shape(parameter, settings) if settings.hook == "powersgd" else None
    if shape is None:
        return parameter.nbytes
    rows, columns, rank = shape
    return (rows + columns) * rank * parameter.element_size()
