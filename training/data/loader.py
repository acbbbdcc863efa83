"""How batches reach the loop: read in the rank itself, or ahead of it by loader processes.

No state of a loader advances, least of all by prefetching: an epoch, or its tail from any step on, is a pure function
of its arguments. What a run has consumed is known to the loop alone, which counts committed steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler

from training.data.order import BatchPlan, epoch_order, share, uniforms
from training.data.types import Batch, DataBundle, Split
from training.errors import PlatformError

MINIMUM_ROWS = 2
"""Rows of a training batch: in training mode, batch norm over features refuses a single one."""

_Request = TypeVar("_Request")
_Read = TypeVar("_Read")


class TrainLoader:
    """The optimizer steps of one rank.

    With `loader_workers` > 0 the processes live as long as the loader, and one epoch can be iterated at a time.
    """

    def __init__(
        self,
        bundle: DataBundle,
        *,
        plan: BatchPlan,
        seed: int,
        rank: int,
        loader_workers: int = 0,
        prefetch: int = 2,
        augment: bool = True,
    ) -> None:
        """Prepares; reads nothing yet and starts no process.

        Args:
            bundle: the dataset; its training split is read.
            plan: how its epochs are cut into steps.
            seed: seed of order and augmentation.
            rank: whose share of every step is read.
            loader_workers: processes that read ahead; 0 reads in this one.
            prefetch: steps that each process keeps ready.
            augment: apply the split's augmentation.

        Raises:
            ValueError: the plan is for another number of samples than the split has.
        """
        if plan.size != len(bundle.train):
            raise ValueError(f"plan.size={plan.size}, but the training split has {len(bundle.train)} samples")
        self._plan = plan
        self._reader = _StepReader(bundle.train, plan=plan, seed=seed, rank=rank, augment=augment)
        self._steps = _Requests[tuple[int, int]]()
        self._ahead = (
            _read_ahead(
                self._reader, self._steps, loader_workers=loader_workers, prefetch=prefetch, keep_processes=True
            )
            if loader_workers
            else None
        )

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[list[Batch]]:
        """Yields the micro-batches of each optimizer step of an epoch.

        Args:
            epoch: which epoch, from 0.
            start_step: step within the epoch to begin at.

        Yields:
            One list of `plan.accumulation` batches per step, each of at least `MINIMUM_ROWS` rows.

        Raises:
            DataError: a sample cannot be read.
        """
        steps = [(epoch, step) for step in range(start_step, self._plan.steps_per_epoch)]
        if self._ahead is None:
            yield from map(self._reader, steps)
        else:
            self._steps.requests = steps
            yield from _raising(self._ahead)


class EvalLoader:
    """One rank's share of a split, in order: over the ranks every sample exactly once, none twice.

    Shares differ by at most one sample, so ranks may see different numbers of batches: no collective inside the
    iteration.
    """

    def __init__(
        self, split: Split, *, batch: int, rank: int, world: int, loader_workers: int = 0, prefetch: int = 2
    ) -> None:
        """Prepares; reads nothing yet.

        Args:
            split: what to evaluate on.
            batch: largest number of samples in a batch.
            rank: whose share is read.
            world: number of ranks.
            loader_workers: processes that read ahead while the loader is iterated; 0 reads in this one.
            prefetch: batches that each process keeps ready.
        """
        mine = share(len(split), parts=world, index=rank)
        self._requests = _Requests([mine[start : start + batch] for start in range(0, len(mine), batch)])
        self._reader = _RangeReader(split)
        self._ahead = (
            _read_ahead(
                self._reader, self._requests, loader_workers=loader_workers, prefetch=prefetch, keep_processes=False
            )
            if loader_workers
            else None
        )

    def __iter__(self) -> Iterator[Batch]:
        """Yields batches without padding.

        Raises:
            DataError: a sample cannot be read.
        """
        return map(self._reader, self._requests) if self._ahead is None else _raising(self._ahead)


class _StepReader:
    """Reads the micro-batches of (epoch, step)."""

    def __init__(self, split: Split, *, plan: BatchPlan, seed: int, rank: int, augment: bool) -> None:
        self._split = split
        self._plan = plan
        self._seed = seed
        self._rank = rank
        self._draws = split.draws if augment else 0
        self._order: tuple[int, NDArray[np.int64]] | None = None

    def __call__(self, request: tuple[int, int]) -> list[Batch]:
        epoch, step = request
        return [
            self._read(epoch, self._plan.positions(step, rank=self._rank, micro=micro))
            for micro in range(self._plan.accumulation)
        ]

    def _read(self, epoch: int, positions: range) -> Batch:
        # Padding is what follows in the epoch's order, from its start again behind its end: other samples than the
        # batch's own, because batch norm over equal rows would divide by a variance of 0.
        rows = range(positions.start, max(positions.stop, positions.start + MINIMUM_ROWS))
        ids = self._epoch_order(epoch).take(np.arange(rows.start, rows.stop), mode="wrap")
        drawn = uniforms(seed=self._seed, epoch=epoch, positions=rows, draws=self._draws) if self._draws else None
        inputs, labels = self._split.read(ids, drawn)
        return Batch(inputs=inputs, labels=labels, ids=ids[: len(positions)], count=len(positions))

    def _epoch_order(self, epoch: int) -> NDArray[np.int64]:
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, epoch_order(seed=self._seed, epoch=epoch, size=self._plan.size)
        return self._order[1]


class _RangeReader:
    """Reads the samples of a range of ids."""

    def __init__(self, split: Split) -> None:
        self._split = split

    def __call__(self, request: range) -> Batch:
        ids = np.arange(request.start, request.stop)
        inputs, labels = self._split.read(ids)
        return Batch(inputs=inputs, labels=labels, ids=ids, count=len(ids))


class _Requests(Sampler[_Request]):
    """What loader processes are asked for, in order; read anew each time the DataLoader is iterated."""

    def __init__(self, requests: Iterable[_Request] = ()) -> None:
        self.requests = requests

    def __iter__(self) -> Iterator[_Request]:
        return iter(self.requests)


class _InProcess(Dataset[_Read | PlatformError], Generic[_Request, _Read]):
    """Runs a reader in a loader process, and hands an error over as a value.

    A DataLoader would raise it again as a new error whose message is the traceback, and the remedy would be lost.
    """

    def __init__(self, reader: Callable[[_Request], _Read]) -> None:
        self._reader = reader

    def __getitem__(self, request: _Request) -> _Read | PlatformError:
        try:
            return self._reader(request)
        except PlatformError as error:
            return error


def _read_ahead(
    reader: Callable[[_Request], _Read],
    requests: Sampler[_Request],
    *,
    loader_workers: int,
    prefetch: int,
    keep_processes: bool,
) -> DataLoader[_Read | PlatformError]:
    return DataLoader(
        _InProcess(reader),
        batch_size=None,
        sampler=requests,
        num_workers=loader_workers,
        prefetch_factor=prefetch,
        persistent_workers=keep_processes,
        # A fork has the dataset at once and shares its memory; the readers touch nothing that a thread of the rank may
        # have locked.
        multiprocessing_context="fork",
        # Its own generator: otherwise each iteration would take a number from torch's global one, which weights and
        # dropout use.
        generator=torch.Generator(),
    )


def _raising(read: Iterable[_Read | PlatformError]) -> Iterator[_Read]:
    for item in read:
        if isinstance(item, PlatformError):
            try:
                raise item
            finally:
                # The error's traceback holds this frame: a cycle, which the garbage collector would take apart in an
                # order that lets the DataLoader wait 5 s for processes it can no longer reach.
                del item
        yield item
