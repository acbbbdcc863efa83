"""Activation checkpointing: the backward pass computes the activations of a block again instead of keeping them.

Of a model of n equal blocks about n inputs and the activations of one block are kept, for one more forward pass of each block (Chen et al.,
arXiv:1604.06174). `selective` also keeps the results of convolutions, matrix products and attention, which take most of the time and a part
of the memory (Korthikanti et al., arXiv:2205.05198), and computes only what lies between them again. Results are the same bits: dropout
draws the same numbers again, and batch norm does not count a batch twice.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, ClassVar, Final, Literal, cast

import torch
from torch import Tensor, nn
from torch._guards import TracingContext
from torch.nn.modules.batchnorm import _BatchNorm
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from infra.spec.errors import reason_of
from training.errors import SettingsError
from training.models.trial_copy import drawing_on, run_trial, trial_copy
from training.seeding import generators_of, kept_draws
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
    names: ClassVar[frozenset[str]]
    compiled_contexts: ClassVar[staticmethod[[], _Contexts]]

    def forward(self, *inputs: Any, **named: Any) -> Any:  # noqa: ANN401 - those of the block
        """The block's outputs, whose activations are computed again where a backward pass needs them."""
        if not torch.is_grad_enabled():
            return super().forward(*inputs, **named)
        if torch.compiler.is_compiling():
            # The compiled backward pass computes operators again and not the module, so it updates no statistics.
            return checkpoint(super().forward, *inputs, use_reentrant=False, context_fn=self.compiled_contexts, **named)
        return checkpoint(super().forward, *inputs, use_reentrant=False, context_fn=self.contexts, **named)

    def contexts(self) -> _Contexts:
        """The contexts of the first computation and of the second."""
        again = _Again(self, self.names)
        if not self.keeps_expensive:
            return nullcontext(), again
        first, second = create_selective_checkpoint_contexts(_EXPENSIVE)  # type: ignore[no-untyped-call]
        # It refuses operators that the first computation has not called, such as those that put the statistics back.
        return first, _both(again, second)


_Contexts = tuple[AbstractContextManager[None], AbstractContextManager[None]]


def _when_compiled(block: _Recomputed) -> Callable[[], _Contexts]:
    """The contexts of a block in a step that is compiled: torch asks for them as it traces the block, or where it cannot trace it."""

    def contexts() -> _Contexts:
        if TracingContext.try_get() is None:
            return block.contexts()
        again = CheckpointPolicy.PREFER_RECOMPUTE
        return create_selective_checkpoint_contexts(lambda *_, **__: again)  # type: ignore[no-any-return, no-untyped-call]

    return contexts


@contextmanager
def _both(outer: AbstractContextManager[None], inner: AbstractContextManager[None]) -> Iterator[None]:
    with outer, inner:
        yield


class _Again(AbstractContextManager[None]):
    """A block computes once more from what it starts from now, and leaves behind what it has left the first time.

    That is its buffers, its own attributes, such as a counter, and the random numbers of the host: torch's checkpoints repeat those of
    torch. What batch norm has is apart (`_counting_nothing`).
    """

    def __init__(self, block: nn.Module, names: frozenset[str]) -> None:
        """Args: `names` are those of its buffers and attributes: what distributes it may add others."""
        parts = list(block.modules())
        self._norms = [one for one in parts if isinstance(one, _BatchNorm) and one.track_running_stats]
        attributes = [
            vars(one) for one in parts if not type(one).__module__.startswith("torch.nn.")
        ]  # theirs do not change
        self._spaces: list[_Values] = [*_buffers_of(block), *attributes]
        self._names = names
        self._start = [_copies(values) for values in self._now()]
        self._generators = generators_of(self._now())
        self._draw_again = kept_draws(self._generators)
        self._entered: list[ExitStack] = []

    def __enter__(self) -> None:
        """Begin; the backward passes of a graph that is kept may each compute it again."""
        self._entered.append(ExitStack())
        self._entered[-1].enter_context(self._again())

    def __exit__(self, *raised: object) -> None:
        """End."""
        self._entered.pop().close()

    @contextmanager
    def _again(self) -> Iterator[None]:
        left, draw_on = self._now(), kept_draws(self._generators)
        self._put([_copies(values) for values in self._start])
        self._draw_again()
        try:
            with _counting_nothing(self._norms):
                yield
        finally:
            draw_on()
            self._put(left)

    def _now(self) -> list[_Values]:
        return [{name: space[name] for name in space.keys() & self._names} for space in self._spaces]

    def _put(self, values: list[_Values]) -> None:
        """Assign them, so that no autograd graph notices."""
        for space, wanted in zip(self._spaces, values, strict=True):
            for name in space.keys() & self._names - wanted.keys():
                del space[name]
            space.update(wanted)


def kept_state(module: nn.Module) -> AbstractContextManager[None]:
    """Within it a module starts from the buffers, attributes and generators that it has now; afterwards it has them again.

    It may be entered more than once.
    """
    return _Again(module, _names_in(module))


_Values = dict[str, Any]
"""Of buffers or attributes of a module, by name."""


def _buffers_of(block: nn.Module) -> list[_Values]:
    """The buffers of a block and of each of its parts, but of those of batch norm."""
    return [one._buffers for one in block.modules() if one._buffers and not isinstance(one, _BatchNorm)]  # noqa: SLF001


def _names_in(block: nn.Module) -> frozenset[str]:
    """The names of the buffers and attributes of a block and its parts, without those that every module has."""
    parts = list(block.modules())
    return frozenset(
        name
        for part in parts
        for name in (*part._buffers, *vars(part).keys() - vars(nn.Module()).keys())  # noqa: SLF001
    )


def _copies(values: _Values) -> _Values:
    """Values that stay as they are while a computation changes its own: tensors without a gradient and collections are copied."""
    return {name: _copied(value) for name, value in values.items()}


def _copied(value: object) -> object:
    if isinstance(value, Tensor):
        return value if value.requires_grad else value.clone()
    return copy.copy(value) if isinstance(value, list | dict | set | deque) else value


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
        SettingsError: it has no blocks, or only single layers of torch, which keep no more than the inputs of a block.
    """
    blocks = [block for block in blocks_of(module) if not _is_single(block)]
    if not blocks:
        raise SettingsError(
            f"compute.activation_checkpointing={mode}: model.name={model} has no blocks of several layers (nn.Sequential, nn.ModuleList or "
            "nn.ModuleDict), whose activations could be computed again",
            remedy="set compute.activation_checkpointing=off, or put the model's layers into modules with a forward() in a sequence",
        )
    for block in blocks:
        kind = type(block)
        own = {
            "keeps_expensive": mode == "selective",
            "names": _names_in(block),
            "compiled_contexts": staticmethod(_when_compiled(cast("_Recomputed", block))),
        }
        block.__class__ = type(f"Recomputed{kind.__name__}", (_Recomputed, kind), own)


def _is_single(block: nn.Module) -> bool:
    is_torch = type(block).__module__.startswith("torch.nn.modules.") and not isinstance(block, nn.RNNBase)
    return is_torch and next(block.children(), None) is None


def check_recomputation(module: nn.Module, inputs: Tensor, *, model: str, is_compiled: bool) -> None:
    """See that a model computes its blocks by their forward(), and that they compute the same a second time, on a batch.

    Runs a copy of the model, in training mode and without gradients; does nothing if it is too large for that, cannot be copied or
    fails, which the first step then reports.

    Args:
        module: the model, after `recompute_blocks`; stays as it is.
        inputs: of the model, on its device; two samples or more.
        model: its name in the settings.
        is_compiled: steps are.

    Raises:
        SettingsError: names the first block that does not, or the first one if none is called.
    """
    copied = trial_copy(module)
    if copied is None:
        return
    called: list[str] = []
    blocks = {name: block for name, block in copied.named_modules() if isinstance(block, _Recomputed)}
    for name, block in blocks.items():
        what = f"block {name} of model.name={model}"
        block.forward = partial(_computed_twice, block, what, is_compiled, called)  # type: ignore[method-assign]
    for mode in (True, False):  # a model may leave out blocks at random in training
        copied.train(mode)
        if not run_trial(copied, inputs) or called:
            return
    raise SettingsError(
        f"compute.activation_checkpointing: model.name={model} never calls its block {next(iter(blocks))}, nor another one, so nothing "
        "would be computed again",
        remedy="call the blocks themselves in the model's forward(), and not another method of theirs or their parts; or set "
        "compute.activation_checkpointing=off",
    )


def _computed_twice(
    block: _Recomputed,
    what: str,
    is_compiled: bool,  # noqa: FBT001
    called: list[str],
    *inputs: Any,  # noqa: ANN401 - those of the block
    **named: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """The outputs of a block that is computed twice.

    Raises:
        SettingsError: they are not the same.
    """
    called.append(what)
    compute = partial(type(block).forward, block, *inputs, **named)
    again = _Again(block, block.names)
    before = [
        (space, name, one, one._version)  # noqa: SLF001
        for space in _buffers_of(block)
        for name, one in space.items()
        if one is not None
    ]
    with drawing_on(next(block.parameters()).device):
        first = tree_map_only(Tensor, Tensor.clone, compute())
    try:
        with again:
            if is_compiled:
                for space, name, one, version in before:
                    if one._version > version:  # noqa: SLF001 - the compiled computation has the buffer as it is by then
                        space[name].copy_(one)
            second = compute()
        for one, other in zip(tree_leaves(first), tree_leaves(second), strict=True):
            if isinstance(one, Tensor):
                assert_close(other, one, rtol=1e-3, atol=1e-5, equal_nan=True)
    except Exception as error:
        raise SettingsError(
            f"compute.activation_checkpointing: {what} computes something else the second time: {reason_of(error):.200}",
            remedy="let it draw from the global generators of torch, NumPy or Python, or from one in an attribute of its own, keep what it "
            "changes in its buffers and attributes (under compute.compile by assignment, not in place), and leave its inputs as they are; "
            "or set compute.activation_checkpointing=off",
        ) from error
    return first
