"""The state of a run in the memory of ranks that only lost a peer: they go on from the step they are at, not from the last checkpoint.

A rank that loses its peers writes its state as a checkpoint into a folder in memory. In the next attempt the ranks agree on the newest of
these and of the committed ones. Those that have another state, or none, get it from the lowest rank that has it; all verify its hashes.
"""

from __future__ import annotations

import logging
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from training.checkpoint.host_copy import HostCopy
from training.checkpoint.manifest import LOOP_STATE_FILE, MANIFEST_FILE, Identity, LoopState, TrainProgress
from training.checkpoint.stateful import StateRegistry
from training.checkpoint.storage import LocalStorage
from training.checkpoint.store import CheckpointStore, VerifiedCheckpoint, bytes_writer
from training.errors import PlatformError

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 64 * 1024**2
_NONE = -1


class RankMemory:
    """What one process keeps of a run between two attempts."""

    def __init__(self, folder: Path) -> None:
        """`folder` is in memory, of this process alone, and need not exist."""
        self._folder = folder
        self._store = CheckpointStore(LocalStorage(folder))
        self._run: Path | None = None

    def serve(self, run_directory: Path) -> None:
        """An attempt of a run begins: what is kept of another run, which may have the same settings, is dropped."""
        if run_directory != self._run:
            self.clear()
        self._run = run_directory

    @property
    def step(self) -> int | None:
        """The step whose state it has."""
        return max(self._store.steps(), default=None)

    def keep(self, progress: TrainProgress, states: StateRegistry, identity: Identity) -> None:
        """Keep a state, in place of an earlier one; without room for it, keep none.

        Raises:
            TypeError: a state holds a value that is neither a tensor nor JSON.
        """
        self.clear()
        state = states.collect()
        copy = HostCopy()
        copy.fill(state.tensors)
        loop_state = LoopState.of(progress, state.values).encode()
        files = {**copy.writers(state.headers), LOOP_STATE_FILE: bytes_writer(loop_state)}
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._store.commit(
                step=progress.step, identity=identity, metric=None, files=files, expected_bytes=copy.nbytes
            )
        except (OSError, PlatformError) as error:
            logger.warning("step %d is not kept in memory: %s", progress.step, error)
            self.clear()

    def clear(self) -> None:
        """Give the memory back."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def newest(self, identity: Identity, *, committed: int) -> tuple[VerifiedCheckpoint, int] | None:
        """The newest state that a rank has in memory, on every rank, and the rank it is from; a collective of all ranks.

        Args:
            identity: the run as it is now.
            committed: step of the newest checkpoint, on rank 0.

        Returns:
            None on all ranks if the checkpoint is newer, or a rank could not get or verify the state.
        """
        own = _NONE if self.step is None else self.step
        gathered = _gathered([own, committed])
        steps = [step for step, _ in gathered]
        step = max(steps)
        if step == _NONE or step < gathered[0][1]:
            return None
        source = steps.index(step)
        checkpoint = None
        try:
            if min(steps) < step:
                self._share(step, source=source, has_it=own == step)
            checkpoint = self._store.open(step, identity)
        except (OSError, PlatformError) as error:
            logger.warning("the state of rank %d at step %d cannot be used: %s", source, step, error)
        if not all(usable for (usable,) in _gathered([checkpoint is not None])):
            return None
        assert checkpoint is not None
        return checkpoint, source

    def _share(self, step: int, *, source: int, has_it: bool) -> None:
        """Send the files of a state from one rank to all; those that have the state drop them."""
        folder = self._store.path(step)
        listed: list[list[tuple[str, int]]] = [[]]
        if dist.get_rank() == source:
            # The manifest last, as in every checkpoint.
            paths = sorted(folder.iterdir(), key=lambda path: (path.name == MANIFEST_FILE, path.name))
            listed = [[(path.name, path.stat().st_size) for path in paths]]
        dist.broadcast_object_list(listed, src=source)
        if not has_it:
            self.clear()
            with suppress(OSError):  # the first file cannot be written then
                folder.mkdir(mode=0o700, parents=True)
        problems = [_broadcast_file(folder / name, size, source=source, writes=not has_it) for name, size in listed[0]]
        for problem in problems:
            if problem is not None:
                raise problem


def _broadcast_file(path: Path, size: int, *, source: int, writes: bool) -> OSError | None:
    """Send a file from one rank to all; returns why it could not be read or written here, as the others go on."""
    problem = _append(path, torch.empty(0, dtype=torch.uint8)) if writes else None
    for start in range(0, size, _CHUNK_BYTES):
        chunk = torch.zeros(min(_CHUNK_BYTES, size - start), dtype=torch.uint8)
        if dist.get_rank() == source:
            problem = problem or _read(path, chunk, start)
        dist.broadcast(chunk, src=source)
        if writes:
            problem = problem or _append(path, chunk)
    return problem


def _read(path: Path, chunk: torch.Tensor, start: int) -> OSError | None:
    """Fill `chunk` from a position of a file; returns why that failed."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            chunk.numpy()[:] = np.frombuffer(file.read(chunk.numel()), dtype=np.uint8)
    except OSError as error:
        return error
    return None


def _append(path: Path, chunk: torch.Tensor) -> OSError | None:
    """Append `chunk` to a file; returns why that failed."""
    try:
        with path.open("ab") as file:
            file.write(chunk.numpy().data)
    except OSError as error:
        return error
    return None


def _gathered(numbers: list[int]) -> list[list[int]]:
    """The numbers of every rank; a single one needs no process group."""
    if not dist.is_initialized():
        return [numbers]
    own = torch.tensor(numbers, dtype=torch.int64)
    found = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(found, own)
    return [one.tolist() for one in found]
