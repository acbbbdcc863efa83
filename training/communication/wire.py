"""Which bytes the ranks send: the policy of `communication`, as arithmetic on the shapes of the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

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
    """Bytes that a rank gives to the all-reduces of a step's gradients; of PowerSGD from the step on at which it starts."""
    return sum(_bytes_of(parameter, settings) for parameter in parameters)


def bytes_between_nodes(parameters: Iterable[Tensor], settings: CommunicationSettings, *, ranks_per_node: int) -> int:
    """Bytes of a step's gradients that a rank gives to all-reduces between nodes.

    All of them in a flat all-reduce, its part in a hierarchical one, where every bucket is padded to a multiple of the ranks: here, one.
    """
    whole = bytes_sent(parameters, settings)
    if not settings.hierarchical:
        return whole
    value = 4 if settings.hook == "none" else _HALF
    return math.ceil(whole // value / ranks_per_node) * value


def describe(
    parameters: Iterable[Tensor], settings: CommunicationSettings, *, world: int, ranks_per_node: int | None
) -> Iterator[str]:
    """What the settings save, for the user.

    Args:
        parameters: of the model.
        settings: of the run.
        world: number of ranks.
        ranks_per_node: as far as the settings use it.
    """
    trained = [one for one in parameters if one.requires_grad]
    whole, sent = sum(one.nbytes for one in trained), bytes_sent(trained, settings)
    if settings.hook != "none":
        begins = f" from step {settings.start_step + 1} on" if settings.hook == "powersgd" else ""
        yield (
            f"communication.hook={settings.hook} reduces the {_megabytes(whole)} of a step's gradients to {_megabytes(sent)}"
            f" (1 : {whole / sent:.3g}){begins}"
        )
    if settings.hierarchical and ranks_per_node is not None:
        between = bytes_between_nodes(trained, settings, ranks_per_node=ranks_per_node)
        yield (
            f"communication.hierarchical=true: of the {_megabytes(sent)} of a step's gradients, each of a node's {ranks_per_node} ranks"
            f" sends {_megabytes(between)} between the {world // ranks_per_node} nodes"
        )
    if settings.local_steps is not None:
        node = (
            ""
            if settings.node_steps is None
            else f", and among the {ranks_per_node} of a node every {settings.node_steps}"
        )
        yield (
            f"communication.local_steps={settings.local_steps}: from step {settings.start_step + 1} on the {world} ranks average their"
            f" {_megabytes(whole)} of weights every {settings.local_steps} steps{node}, in place of the gradients of every step"
        )
    if settings.shard_optimizer:
        yield f"communication.shard_optimizer=true: the optimizer's state of each weight is on one of the {world} ranks"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.3g} MB"


def _bytes_of(parameter: Tensor, settings: CommunicationSettings) -> int:
    if settings.hook in {"fp16", "bf16"}:
        return parameter.numel() * _HALF
    shape = factor_shape(parameter, settings) if settings.hook == "powersgd" else None
    if shape is None:
        return parameter.nbytes
    rows, columns, rank = shape
    return (rows + columns) * rank * parameter.element_size()
