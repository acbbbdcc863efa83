"""Loaders read batches in the rank's process, or prefetch them in worker processes.

Loaders are stateless: an epoch, from any start step, is a pure function of its arguments, and prefetching advances
nothing. Only the loop knows what a run has consumed, because it counts committed steps. Batches for a GPU are pinned and
copied one step ahead (`training.data.transfer`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, Sampler

from training.data.forking import StartedForkContext
from training.data.order import BatchPlan, uniforms
from training.data.own_draws import SeededReader
from training.data.reading import Check
from training.data.sample_order import sample_order
from training.data.transfer import CudaCopies, one_ahead
from training.data.types import Batch, Split
from training.errors import LoaderProcessError, PlatformError

MINIMUM_ROWS = 2
"""Minimum rows of a training batch: batch norm over features raises for a single row in training mode."""

NO_WATCH: AbstractContextManager[object] = nullcontext()
"""Nobody looks how long a batch takes."""

_Request = TypeVar("_Request")
_Item = TypeVar("_Item")


class TrainLoader:
    """Yields the micro-batches of each optimizer step of one rank.

    With `loader_workers` > 0 the worker processes live as long as the loader, and only one epoch can be iterated at a
    time.
    """

    def __init__(
        self,
        split: Split,
        *,
        plan: BatchPlan,
        seed: int,
        rank: int,
        loader_workers: int = 0,
        prefetch: int = 2,
        augment: bool = True,
        equal_rows: bool = False,
        copy_to: torch.device | None = None,
        waiting: AbstractContextManager[object] = NO_WATCH,
        check: Check | None = None,
    ) -> None:
        """Reads nothing and starts no process yet.

        Args:
            split: training split.
            plan: how an epoch divides into steps.
            seed: seed of order and augmentation.
            rank: whose share of each step is read (`training.data.place`).
            loader_workers: worker processes that prefetch; 0 reads in this process.
            prefetch: steps that each worker prefetches.
            augment: apply the split's augmentation.
            equal_rows: pad the micro-batches of a step to the same number of rows; one of a short last step may have one fewer.
            copy_to: GPU that batches are copied to, a step ahead; None yields them in host memory.
            waiting: entered while a step's batches are read or waited for; has to be reusable.
            check: of the targets that are read.

        Raises:
            ValueError: `plan.size` is not the number of training samples.
        """
        if plan.size != len(split):
            raise ValueError(f"plan.size={plan.size}, but the training split has {len(split)} samples")
        self._plan = plan
        self._reader = StepReader(
            split, plan=plan, seed=seed, rank=rank, augment=augment, equal_rows=equal_rows, check=check
        )
        self._steps = _Requests[tuple[int, int]]()
        self._prefetcher = (
            _make_prefetcher(
                self._reader,
                self._steps,
                loader_workers=loader_workers,
                prefetch=prefetch,
                pins=copy_to is not None,
            )
            if loader_workers
            else None
        )
        self._copies = None if copy_to is None else CudaCopies(copy_to)
        self._waiting = waiting

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[list[Batch]]:
        """Yields the micro-batches of each optimizer step of an epoch.

        Args:
            epoch: epoch, counted from 0.
            start_step: first step within the epoch.

        Yields:
            A list of `plan.accumulation` batches for each step, each with at least `MINIMUM_ROWS` rows.

        Raises:
            DataError: a sample cannot be read.
        """
        steps = [(epoch, step) for step in range(start_step, self._plan.steps_per_epoch)]
        read = _entering(self._read(steps), lambda: self._waiting)
        return read if self._copies is None else one_ahead(read, self._copies)

    def _read(self, steps: list[tuple[int, int]]) -> Iterator[list[Batch]]:
        if self._prefetcher is None:
            yield from map(self._reader, steps)
        else:
            self._steps.requests = steps
            yield from _raise_errors(self._prefetcher)


class EvalLoader:
    """Yields every `world`-th batch of a split, in order; together the ranks read every sample exactly once.

    A batch has the same samples at every world size. Ranks may yield different numbers of batches: do not call a
    collective while iterating. With `loader_workers` > 0 the worker processes start with the first iteration and live as
    long as the loader; only one iteration can be under way at a time.

    Attributes:
        batches: number of batches of all ranks.
        rounds: number of batches of the rank that has the most.
        rank, world: the share whose batches are yielded, those number `rank`, `rank + world`, and so on (`training.data.place`).
    """

    def __init__(
        self,
        split: Split,
        *,
        batch: int,
        rank: int,
        world: int,
        loader_workers: int = 0,
        prefetch: int = 2,
        copy_to: torch.device | None = None,
        waiting: AbstractContextManager[object] = NO_WATCH,
        check: Check | None = None,
    ) -> None:
        """Reads nothing and starts no process yet.

        Args:
            split: split to evaluate on.
            batch: maximum number of samples in a batch.
            rank: share whose batches are read.
            world: number of shares.
            loader_workers: worker processes that prefetch; 0 reads in this process.
            prefetch: batches that each worker prefetches.
            copy_to: GPU that batches are copied to, one ahead; None yields them in host memory.
            waiting: entered while a batch is read or waited for; has to be reusable.
            check: of the targets that are read.
        """
        ids = range(len(split))
        starts = range(0, len(split), batch)
        self.batches = len(starts)
        self.rank = rank
        self.world = world
        self.rounds = -(-self.batches // world)
        self._requests = _Requests([ids[start : start + batch] for start in starts[rank::world]])
        self._reader = _RangeReader(split, check)
        self._prefetcher = (
            _make_prefetcher(
                self._reader,
                self._requests,
                loader_workers=loader_workers,
                prefetch=prefetch,
                pins=copy_to is not None,
            )
            if loader_workers
            else None
        )
        self._copies = None if copy_to is None else CudaCopies(copy_to)
        self._waiting = waiting

    def __iter__(self) -> Iterator[Batch]:
        """Yields batches without padding.

        Raises:
            DataError: a sample cannot be read.
        """
        prefetcher = self._prefetcher
        items = map(self._reader, self._requests) if prefetcher is None else _raise_errors(prefetcher)
        read = _entering(items, lambda: self._waiting)
        if self._copies is None:
            return read
        return (batch for [batch] in one_ahead(([batch] for batch in read), self._copies))

    def sample(self) -> Batch:
        """A batch of the split's first sample, for a rank that has no batch of its own in the last round."""
        return self._reader(range(1))


@dataclass(frozen=True)
class Share:
    """What a rank reads for one micro-batch.

    Attributes:
        ids: ids of the samples, the last ones padding.
        rows: their positions in the epoch; those of padding may lie behind its end.
        count: samples without padding.
    """

    ids: NDArray[np.int64]
    rows: range
    count: int


class StepReader:
    """Reads the micro-batches of a request (epoch, step) of one rank."""

    def __init__(
        self,
        split: Split,
        *,
        plan: BatchPlan,
        seed: int,
        rank: int,
        augment: bool,
        equal_rows: bool,
        check: Check | None,
    ) -> None:
        """Reads nothing yet; the arguments are those of `TrainLoader`."""
        self._split = split
        self._read_samples = SeededReader(split, check=check)
        self._plan = plan
        self._seed = seed
        self._rank = rank
        self._draws = split.draws if augment else 0
        self._equal_rows = equal_rows
        self._order: tuple[int, NDArray[np.int64]] | None = None

    def __call__(self, request: tuple[int, int]) -> list[Batch]:
        """The micro-batches of a step.

        Raises:
            DataError: a sample cannot be read.
        """
        return [self._read(request[0], share) for share in self.shares(request)]

    def shares(self, request: tuple[int, int]) -> list[Share]:
        """What is read for each micro-batch of a step."""
        epoch, step = request
        shares = [self._plan.positions(step, rank=self._rank, micro=micro) for micro in range(self._plan.accumulation)]
        least = max(MINIMUM_ROWS, len(shares[0])) if self._equal_rows else MINIMUM_ROWS
        return [self._padded(epoch, positions, least=least) for positions in shares]

    def _padded(self, epoch: int, positions: range, *, least: int) -> Share:
        # Pad with the samples that follow in the epoch's order, wrapping around at its end. They differ from the batch's
        # own samples: batch norm over equal rows would divide by a variance of 0.
        rows = range(positions.start, max(positions.stop, positions.start + least))
        ids = self._epoch_order(epoch).take(np.arange(rows.start, rows.stop), mode="wrap")
        return Share(ids, rows, len(positions))

    def _read(self, epoch: int, share: Share) -> Batch:
        draws = self._draws
        drawn = uniforms(seed=self._seed, epoch=epoch, positions=share.rows, draws=draws) if draws else None
        position = share.rows.start
        inputs, targets = self._read_samples(share.ids, drawn, position=position, seed=self._seed, epoch=epoch)
        return Batch(inputs=inputs, targets=targets, ids=share.ids[: share.count], count=share.count)

    def _epoch_order(self, epoch: int) -> NDArray[np.int64]:
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, sample_order(self._split, seed=self._seed, epoch=epoch)
        return self._order[1]


class _RangeReader:
    """Reads the samples of a request, a range of ids."""

    def __init__(self, split: Split, check: Check | None) -> None:
        self._read_samples = SeededReader(split, check=check)

    def __call__(self, request: range) -> Batch:
        ids = np.arange(request.start, request.stop)
        inputs, targets = self._read_samples(ids, position=request.start)
        return Batch(inputs=inputs, targets=targets, ids=ids, count=len(ids))


class _Requests(Sampler[_Request]):
    """A sampler over requests; the DataLoader reads `requests` at the start of each iteration."""

    def __init__(self, requests: Iterable[_Request] = ()) -> None:
        self.requests = requests

    def __iter__(self) -> Iterator[_Request]:
        return iter(self.requests)


class _ReaderDataset(Dataset[_Item | PlatformError], Generic[_Request, _Item]):
    """Runs a reader in a worker process and returns an error as a value.

    DataLoader would re-raise it as a new error with the traceback as its message, without the remedy.
    """

    def __init__(self, reader: Callable[[_Request], _Item]) -> None:
        self._reader = reader

    def __getitem__(self, request: _Request) -> _Item | PlatformError:
        try:
            return self._reader(request)
        except PlatformError as error:
            return error


def _make_prefetcher(
    reader: Callable[[_Request], _Item],
    requests: Sampler[_Request],
    *,
    loader_workers: int,
    prefetch: int,
    pins: bool,
) -> DataLoader[_Item | PlatformError]:
    return DataLoader(
        _ReaderDataset(reader),
        batch_size=None,
        sampler=requests,
        num_workers=loader_workers,
        prefetch_factor=prefetch,
        persistent_workers=True,
        pin_memory=pins,
        # fork shares the dataset's memory and needs no pickling. It is safe: readers use nothing that another thread of
        # the rank could have locked.
        multiprocessing_context=StartedForkContext(),
        # Without a generator of its own, each iteration draws from torch's global one, which weights and dropout use.
        generator=torch.Generator(),
    )


def _entering(items: Iterator[_Item], context: Callable[[], AbstractContextManager[object]]) -> Iterator[_Item]:
    """The items; each is waited for in a context."""
    while True:
        try:
            with context():
                item = next(items)
        except StopIteration:
            return
        yield item


@contextmanager
def _receiving() -> Iterator[None]:
    """The context in which an item of a loader process is waited for.

    Raises:
        LoaderProcessError: a process ended while it passed one on, so that the connection to it or the shared memory is gone.
    """
    try:
        yield
    except (OSError, EOFError) as error:
        if str(error).startswith("Caught "):  # of the dataset, in torch's words
            raise
        raise LoaderProcessError(
            f"a process of the data loader ended while it passed on a batch: {error}",
            remedy="let `read` of the dataset raise an exception instead of ending its process; or it was killed: check dmesg or the "
            "pod's status",
        ) from error


def _raise_errors(items: Iterable[_Item | PlatformError]) -> Iterator[_Item]:
    for item in _entering(iter(items), _receiving):
        if isinstance(item, PlatformError):
            try:
                raise item
            finally:
                # The traceback refers to this frame. Break the cycle: the garbage collector could otherwise destroy the
                # DataLoader's parts in an order that makes it wait 5 s for workers it can no longer reach.
                del item
        yield item
