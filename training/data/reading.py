"""Reads samples of a split, which may be a user's own, and checks that they are those that were asked for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from training.data.types import Split
from training.errors import DataError, SettingsError

Check = Callable[[Tensor], None]
"""Raises SettingsError for targets that the objective cannot be computed on."""

_PROMISE = "read(ids) has to return two tensors, the inputs and the targets, with one entry for each id"


def read_samples(
    split: Split,
    ids: NDArray[np.int64],
    uniforms: NDArray[np.float64] | None = None,
    *,
    check: Check | None = None,
) -> tuple[Tensor, Tensor]:
    """The inputs and targets of the samples with these ids, in memory of their own; see `Split.read`.

    Args:
        split: where they are.
        ids: shape (n,).
        uniforms: of the augmentation.
        check: of the targets; None leaves them unchecked.

    Raises:
        DataError: a sample cannot be read, or `read` returned something else than one input and one target for each id.
        SettingsError: a target is none of the objective.
    """
    try:
        found: object = split.read(ids.copy(), uniforms)  # which sorts them, perhaps, as HDF5 wants
    except StopIteration as error:
        raise DataError(
            f"read of {len(ids)} samples raised StopIteration, which would end the epoch",
            remedy="a split is read by ids, in any order and more than once: keep no iterator in it",
        ) from error
    if not isinstance(found, tuple | list) or len(found) != 2 or not all(isinstance(one, Tensor) for one in found):
        kinds = [type(one).__name__ for one in found] if isinstance(found, tuple | list) else type(found).__name__
        raise DataError(f"read of {len(ids)} samples returned {kinds}", remedy=_PROMISE)
    inputs, targets = found
    for what, tensor in (("inputs", inputs), ("targets", targets)):
        if not tensor.ndim or len(tensor) != len(ids):
            raise DataError(
                f"read of {len(ids)} samples returned {what} of shape {tuple(tensor.shape)}", remedy=_PROMISE
            )
    if check is not None:
        try:
            check(targets)
        except SettingsError as error:
            raise SettingsError(
                f"{error.args[0]} (in a batch that begins with sample {ids[0]} of its split)", remedy=error.remedy
            ) from None
    # The next call may write into the memory that this one returned, and a model into that of the dataset: 1/10 of reading a table from
    # memory, nothing beside decoding.
    return inputs.clone(), targets.clone()
