"""The FLOPs of a training step: torch's formulas for matrix products, convolutions and attention, at the shapes of the first micro-batch.

Counting does not compute anything twice or otherwise: torch's counter sees every operator of the forward and the backward pass on its
way to the device. Elementwise operators count 0, as in the literature; what activation checkpointing computes again counts. A region that
a user's own model compiles runs uncompiled in that micro-batch and is compiled in the next; of `compute.compile` see `count_apart`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.utils.module_tracker import ModuleTracker

Formula = Callable[..., int]


class _WholeModel:
    """In place of torch's tracker, which attributes FLOPs to modules, and fails where a forward pass computes gradients by itself."""

    parents = frozenset({"Global"})

    def __enter__(self) -> None: ...

    def __exit__(self, *raised: object) -> None: ...


class FlopCount:
    """The FLOPs that a sample costs.

    Attributes:
        per_sample: FLOPs of forward and backward pass; None before the first micro-batch, or if they cannot be counted.
        problem: why they cannot; empty if they can.
    """

    def __init__(self) -> None:
        self.per_sample: float | None = None
        self.problem = ""
        self._has_counted = False

    def counting(self, rows: int) -> AbstractContextManager[None]:
        """The context of a micro-batch of so many rows, padding included; only the first is counted."""
        return nullcontext() if self._has_counted else self._count(rows)

    def count_apart(self, module: nn.Module, inputs: Tensor) -> None:
        """Count the first micro-batch in a pass of its own, through a copy of the module without values.

        A compiled model must not run uncompiled in one step: its kernels round differently. `inputs` has the rows, padding included.
        """
        if self._has_counted:
            return
        from training.strategies.skeleton import skeleton_of  # noqa: PLC0415 - imports torch

        try:
            copied = skeleton_of(module)
            with self._count(len(inputs)):
                copied(inputs.to("meta")).sum().backward()
        except Exception as error:  # noqa: BLE001 - a module of the user's own may need values
            self.problem = f"{type(module).__name__} cannot be counted without values: {error}"

    @contextmanager
    def _count(self, rows: int) -> Iterator[None]:
        # Imported here, because only rank 0 counts.
        from torch.utils.flop_counter import FlopCounterMode, flop_registry  # noqa: PLC0415

        from training.recurrent_flops import recurrent_formulas  # noqa: PLC0415

        self._has_counted = True
        known = {**flop_registry, **recurrent_formulas()}
        formulas = {operator: self._harmless(formula) for operator, formula in known.items()}
        counter = FlopCounterMode(display=False, custom_mapping=formulas, skip_unsupported=True)
        counter.mod_tracker = cast("ModuleTracker", _WholeModel())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # operators without a formula, which are reported below
            with counter:
                yield
        if unknown := counter.get_unsupported_ops():
            self.problem = f"torch has no formula for {', '.join(sorted(unknown))}"
        if not self.problem:
            self.per_sample = counter.get_total_flops() / rows

    def _harmless(self, formula: Formula) -> Formula:
        """The formula, which must not end the training where it does not know the shapes."""

        @wraps(formula)
        def counted(*args: object, **kwargs: object) -> int:
            try:
                return formula(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - a formula may raise anything
                self.problem = f"{formula.__name__}: {error}"
                return 0

        # The registered formulas replace tensors by their shapes themselves; with this mark torch does not do it before.
        counted._get_raw = True  # type: ignore[attr-defined]  # noqa: SLF001
        return counted
