"""Activation checkpointing: the backward pass computes the activations of a block again instead of keeping them.

Of a model of n equal blocks about n inputs and the activations of one block are kept, for one more forward pass of each block (Chen et al.,
arXiv:1604.06174). `selective` also keeps the results of convolutions, matrix products and attention, which take most of the time and a part
of the memory (Korthikanti et al., arXiv:2205.05198), and computes only what lies between them again. Results are the same bits: dropout
draws the same numbers again, and batch norm does not count a batch twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar, Final, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from training.errors import SettingsError
from training.strategies.units import blocks_of

_aten = torch.ops.aten
_EXPENSIVE: Final = [
    _aten.mm.default,
    _aten.addmm.default,
    _aten.bmm.default,
    _aten.baddbmm.default,
    _aten.convolution.default,
    _aten._scaled_dot_product_flash_attention.default,  # noqa: SLF001 - torch's names of its operators
    _aten._scaled_dot_product_flash_attention_for_cpu.default,  # noqa: SLF001
    _aten._scaled_dot_product_efficient_attention.default,  # noqa: SLF001
    _aten._scaled_dot_product_cudnn_attention.default,  # noqa: SLF001
]
"""Operators whose results `selective` keeps."""


class _Recomputed(nn.Module):
    """Mixed into the class of a block, so that its parameters keep their names."""

    keeps_expensive: ClassVar[bool]

    def forward(self, *inputs: Any) -> Any:  # noqa: ANN401 - those of the block
        """The block's outputs, whose activations are computed again where a backward pass needs them."""
        if not torch.is_grad_enabled():
            return super().forward(*inputs)
        if torch.compiler.is_compiling():
            # The compiled backward pass computes operators again and not the module, so it updates no statistics.
            return checkpoint(super().forward, *inputs, use_reentrant=False)
        return checkpoint(super().forward, *inputs, use_reentrant=False, context_fn=self._contexts)

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """The contexts of the first computation and of the second."""
        norms = [one for one in self.modules() if isinstance(one, _BatchNorm) and one.track_running_stats]
        again = _both(_counting_nothing(norms), _with_buffers(_own_buffers(self)))
        if not self.keeps_expensive:
            return nullcontext(), again
        first, second = create_selective_checkpoint_contexts(_EXPENSIVE)  # type: ignore[no-untyped-call]
        # It refuses operators that the first computation has not called, such as those that put the statistics back.
        return first, _both(again, second)


@contextmanager
def _both(outer: AbstractContextManager[None], inner: AbstractContextManager[None]) -> Iterator[None]:
    with outer, inner:
        yield


_Buffers = list[tuple[nn.Module, str, Tensor]]


def _own_buffers(block: nn.Module) -> _Buffers:
    """Copies of the buffers as they are, but of those of batch norm, with the module and name of each."""
    return [
        (part, name, buffer.clone())
        for part in block.modules()
        if not isinstance(part, _BatchNorm)
        for name, buffer in part.named_buffers(recurse=False)
    ]


@contextmanager
def _with_buffers(copies: _Buffers) -> Iterator[None]:
    """The second computation starts from the buffers that the first one started from, and changes those copies only."""
    live = [(part, name, part._buffers[name]) for part, name, _ in copies]  # noqa: SLF001 - assigned, so that no autograd graph notices
    for part, name, copied in copies:
        part._buffers[name] = copied  # noqa: SLF001
    try:
        yield
    finally:
        for part, name, buffer in live:
            part._buffers[name] = buffer  # noqa: SLF001


@contextmanager
def _counting_nothing(norms: Sequence[_BatchNorm]) -> Iterator[None]:
    """Batch norm normalizes by the batch again, and its running statistics end as they were."""
    momenta, counts = [one.momentum for one in norms], [one.num_batches_tracked for one in norms]
    kept = [None if one is None else one.clone() for one in counts]
    for norm in norms:
        norm.momentum = 0.0
    try:
        yield
    finally:
        for norm, momentum, count, before in zip(norms, momenta, counts, kept, strict=True):
            norm.momentum = momentum
            if count is not None and before is not None:
                count.copy_(before)


def recompute_blocks(module: nn.Module, mode: Literal["full", "selective"], *, model: str) -> None:
    """Compute the activations of every block of a model again in the backward pass.

    Args:
        module: the model, before it is distributed.
        mode: all of them, or all but those of expensive operators.
        model: its name in the settings.

    Raises:
        SettingsError: it has no blocks.
    """
    blocks = blocks_of(module)
    if not blocks:
        raise SettingsError(
            f"compute.activation_checkpointing={mode}: model.name={model} has no blocks (nn.Sequential or nn.ModuleList)",
            remedy="set compute.activation_checkpointing=off, or put the model's layers into a sequence",
        )
    for block in blocks:
        kind = type(block)
        block.__class__ = type(
            f"Recomputed{kind.__name__}", (_Recomputed, kind), {"keeps_expensive": mode == "selective"}
        )
