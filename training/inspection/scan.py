"""Reads every sample of a split, in several processes, and counts what is in it."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data.forking import StartedForkContext
from training.data.types import Split
from training.errors import DataError

_BATCH = 64
"""Samples that a process reads at once."""

_CHUNK = 1024
"""Consecutive samples that one process reads: most are of one row group or shard."""

_REPORT_SECONDS = 2.0


@dataclass(kw_only=True)
class Contents:
    """What the samples of a split are.

    Attributes:
        samples: how many could be read.
        target: dtype and shape of a target; empty if no sample could be read.
        classes: samples of each class; empty if the targets are not classes.
        unusable: ids of the samples whose inputs have NaN or an infinite number, ascending.
        count: finite numbers in the inputs of float32, of which `total` is the sum and `squares` that of the squares.
        total: see `count`.
        squares: see `count`.
        damaged: what is said of each sample that cannot be read, in the order of the samples, each once.
    """

    samples: int = 0
    target: str = ""
    classes: Counter[int] = field(default_factory=Counter)
    unusable: list[int] = field(default_factory=list)
    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    damaged: dict[str, None] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """Mean of the numbers in the inputs."""
        return self.total / self.count

    @property
    def deviation(self) -> float:
        """Standard deviation of the numbers in the inputs."""
        return math.sqrt(max(0.0, self.squares / self.count - self.mean**2))

    def add(self, other: Contents) -> None:
        """Add those of other samples."""
        self.samples += other.samples
        self.target = self.target or other.target
        self.classes.update(other.classes)
        self.unusable += other.unusable
        self.count += other.count
        self.total += other.total
        self.squares += other.squares
        self.damaged.update(other.damaged)


def scan(split: Split, ids: NDArray[np.int64], *, processes: int, report: Callable[[int, float], None]) -> Contents:
    """Reads samples, without augmentation.

    Args:
        split: the split.
        ids: the samples to read.
        processes: processes that read.
        report: called from time to time with the number of samples done and the seconds they took, and at the end.
    """
    contents, done = Contents(), 0
    start = reported = time.perf_counter()
    size = max(1, min(_CHUNK, len(ids) // (4 * processes)))
    chunks = [ids[first : first + size] for first in range(0, len(ids), size)]
    with ProcessPoolExecutor(
        processes, mp_context=StartedForkContext(), initializer=_start, initargs=(split,)
    ) as executor:
        for chunk, part in zip(chunks, executor.map(_read_in_process, chunks), strict=True):
            contents.add(part)
            done += len(chunk)
            now = time.perf_counter()
            if now - reported > _REPORT_SECONDS or done == len(ids):
                reported = now
                report(done, now - start)
    return contents


def read(split: Split, ids: NDArray[np.int64]) -> Contents:
    """Reads samples in this process; those that cannot be read are named one by one."""
    contents = Contents()
    batches = (ids[first : first + _BATCH] for first in range(0, len(ids), _BATCH))
    for found, inputs, targets in (read for batch in batches for read in _readable(split, batch, contents.damaged)):
        contents.samples += len(inputs)
        contents.target = f"{str(targets.dtype).removeprefix('torch.')} {tuple(targets.shape[1:])}"
        if targets.dtype == torch.int64 and targets.ndim == 1:
            contents.classes.update(targets.tolist())
        if inputs.dtype == torch.float32:
            is_finite = inputs.isfinite()
            contents.unusable += found[~is_finite.flatten(1).all(1).numpy()].tolist()
            wide = inputs[is_finite].double()
            contents.count += wide.numel()
            contents.total += float(wide.sum())
            contents.squares += float(wide.square().sum())
    return contents


def _readable(
    split: Split, ids: NDArray[np.int64], damaged: dict[str, None]
) -> Iterator[tuple[NDArray[np.int64], Tensor, Tensor]]:
    try:
        yield ids, *split.read(ids)
    except (DataError, OSError) as error:
        if len(ids) == 1:
            damaged[str(error).partition("\n")[0]] = None
            return
        for one in ids:
            yield from _readable(split, np.array([one]), damaged)


_split: Split | None = None
"""The split that this process reads. A fork inherits it; nothing is pickled."""


def _start(split: Split) -> None:
    global _split  # noqa: PLW0603 - what a process of a pool starts with
    _split = split
    torch.set_num_threads(1)  # the other cores have processes of their own


def _read_in_process(ids: NDArray[np.int64]) -> Contents:
    assert _split is not None, "set when the process started"
    return read(_split, ids)
