"""Which ranks write a checkpoint: rank 0 alone, or every rank the parts that it has.

Every rank writes the same steps in the same order, or a checkpoint would lack parts. The loop's threads agree on them when they save, by
a small all-reduce. The writing threads pass each other what they have written over a process group of their own, as DCP's `async_save`
does: collectives of two threads on one group would meet in another order on every rank.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Protocol

import torch
import torch.distributed as dist

from training.checkpoint import parts
from training.checkpoint.manifest import SHARDED_FORMAT, FileEntry, Identity, Manifest
from training.checkpoint.stateful import CollectedState, StateRegistry
from training.checkpoint.store import CheckpointStore, FileWriter
from training.errors import CheckpointError

LONGEST_WAIT = 1800.0
"""Seconds by which one rank may write slower than another. A rank that dies is noticed at once, by its closed connection."""


class Waiting(Enum):
    """How many ranks have a snapshot that waits, which their threads have not begun to write."""

    NONE = 0
    SOME = 1
    ALL = 2


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What this rank writes of a checkpoint.

    Attributes:
        step: optimizer steps done.
        identity: the run.
        metric: the metric at this step, None if it was not measured.
        files: the writer of each of this rank's files, by name.
        expected_bytes: size of these files, for the message when the disk is full.
    """

    step: int
    identity: Identity
    metric: float | None
    files: dict[str, FileWriter]
    expected_bytes: int


class WritingRanks(Protocol):
    """The ranks that write a checkpoint. `collect` is called by the loop's thread, the others by the writing thread."""

    @property
    def leads(self) -> bool:
        """Whether this rank commits, removes old checkpoints and reports: rank 0."""
        ...

    def collect(self, states: StateRegistry, *, is_waiting: bool) -> tuple[CollectedState, Waiting]:
        """The live tensors that this rank writes, and which ranks have a snapshot that waits; `is_waiting` says whether this one has."""
        ...

    def commit(self, store: CheckpointStore, draft: Draft) -> Manifest | None:
        """Write and commit a checkpoint; returns its manifest where `leads`.

        Raises:
            CheckpointError: this or another rank could not write. No rank has a checkpoint of the step then.
        """
        ...


class OneRank:
    """Rank 0 writes whole tensors. A strategy whose tensors are sharded gathers them."""

    leads = True

    def collect(self, states: StateRegistry, *, is_waiting: bool) -> tuple[CollectedState, Waiting]:
        """The whole state."""
        return states.collect(), Waiting.ALL if is_waiting else Waiting.NONE

    def commit(self, store: CheckpointStore, draft: Draft) -> Manifest:
        """Write and commit."""
        return store.commit(
            step=draft.step,
            identity=draft.identity,
            metric=draft.metric,
            files=draft.files,
            expected_bytes=draft.expected_bytes,
        )


@dataclass(frozen=True, kw_only=True)
class _Problem:
    """Why a checkpoint failed, for all ranks. `number` is the errno of the cause, 0 without one."""

    message: str
    remedy: str
    number: int

    @classmethod
    def of(cls, error: CheckpointError, *, prefix: str = "") -> _Problem:
        cause = error.__cause__
        number = (cause.errno or 0) if isinstance(cause, OSError) else 0
        return cls(message=f"{prefix}{error.args[0]}", remedy=error.remedy, number=number)

    def error(self) -> CheckpointError:
        """The error. Its cause tells a full disk from others (`training.unwritable`)."""
        error = CheckpointError(self.message, remedy=self.remedy)
        error.__cause__ = OSError(self.number, os.strerror(self.number)) if self.number else None
        return error


_Message = _Problem | tuple[FileEntry, ...]
"""What a rank tells another: what it has written, nothing for success, or why the checkpoint failed."""


class EveryRank:
    """Every rank writes its parts of the tensors, rank 0 also the JSON values and, once all have written, the manifest.

    Making one is a collective, of all ranks.
    """

    def __init__(self, device: torch.device, *, longest_wait: float = LONGEST_WAIT) -> None:
        """Args: `device` is that of the default group's collectives; `longest_wait` in seconds, see `LONGEST_WAIT`."""
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        self._device = device
        self._longest_wait = longest_wait
        group = dist.new_group(backend="gloo", timeout=timedelta(seconds=longest_wait))
        assert isinstance(group, dist.ProcessGroup)  # torch's type has a number for ranks that are not members
        self._threads = group
        self._layout: parts.Layout | None = None
        self._parts: list[parts.Part] = []

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        return self._rank == 0

    def collect(self, states: StateRegistry, *, is_waiting: bool) -> tuple[CollectedState, Waiting]:
        """The parts that this rank writes. Collective; plans anew if a rank's tensors are others than before.

        Raises:
            ValueError: the parts of all ranks do not make up whole tensors.
        """
        live = states.collect(whole=False)
        layout = parts.layout_of(live.tensors)
        votes = torch.tensor(
            [layout != self._layout, is_waiting, not is_waiting], dtype=torch.int32, device=self._device
        )
        dist.all_reduce(votes, op=dist.ReduceOp.MAX)
        is_changed, some, not_all = votes.tolist()
        if is_changed:
            self._parts = parts.plan_parts(live.tensors)
            self._layout = layout
        selected = replace(live, tensors=parts.select(live.tensors, self._parts), headers=parts.headers(self._parts))
        return selected, Waiting.NONE if not some else Waiting.SOME if not_all else Waiting.ALL

    def commit(self, store: CheckpointStore, draft: Draft) -> Manifest | None:
        """Write this rank's files; rank 0 commits what all ranks have written.

        Raises:
            CheckpointError: names the rank that could not write.
            DistNetworkError: a rank is gone, or is slower than the others by more than `longest_wait`.
        """
        if self.leads:
            return self._lead(store, draft)
        self._raise_problem_of_rank_0()
        self._send(self._write(store, draft), to=0)
        self._raise_problem_of_rank_0()
        return None

    def _lead(self, store: CheckpointStore, draft: Draft) -> Manifest:
        with self._telling():
            store.clear(draft.step)
        written = [self._write(store, draft), *(self._receive(rank) for rank in range(1, self._world))]
        with self._telling():
            try:
                files = [file for message in written for file in _files(message)]
                return store.seal(
                    step=draft.step, identity=draft.identity, metric=draft.metric, files=files, layout=SHARDED_FORMAT
                )
            except CheckpointError:
                store.discard(draft.step)
                raise

    def _write(self, store: CheckpointStore, draft: Draft) -> _Message:
        try:
            return store.write(draft.step, draft.files, expected_bytes=draft.expected_bytes)
        except CheckpointError as error:
            return _Problem.of(error, prefix=f"rank {self._rank}: ")

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Tell the other ranks how the block ended."""
        try:
            yield
        except CheckpointError as error:
            self._tell(_Problem.of(error))
            raise
        self._tell(())

    def _tell(self, message: _Message) -> None:
        for rank in range(1, self._world):
            self._send(message, to=rank)

    def _raise_problem_of_rank_0(self) -> None:
        _files(self._receive(0))

    def _send(self, message: _Message, *, to: int) -> None:
        with self._naming(to):
            dist.send_object_list([message], dst=to, group=self._threads)

    def _receive(self, rank: int) -> _Message:
        received: list[_Message] = [()]
        with self._naming(rank):
            dist.recv_object_list(received, src=rank, group=self._threads)
        return received[0]

    @contextmanager
    def _naming(self, rank: int) -> Iterator[None]:
        """Errors of gloo name an address, not the rank that is gone or late."""
        try:
            yield
        except RuntimeError as error:
            raise dist.DistNetworkError(
                f"rank {rank} does not write its part of a checkpoint (it is waited for {self._longest_wait:g} s): {error}"
            ) from error


def _files(message: _Message) -> tuple[FileEntry, ...]:
    """What a rank has written, or the error that it has reported."""
    if isinstance(message, _Problem):
        raise message.error()
    return message


def writing_ranks(*, shards_state: bool, rank: int, device: torch.device) -> WritingRanks | None:
    """Of a strategy (`Strategy.shards_state`); None on a rank that writes nothing. A collective if the strategy shards its state."""
    if shards_state:
        return EveryRank(device)
    return OneRank() if rank == 0 else None
