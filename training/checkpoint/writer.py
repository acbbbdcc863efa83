"""Writes checkpoints asynchronously: the loop waits for a copy in memory, a thread does the rest.

At most one checkpoint is being written and at most one snapshot waits, so the host holds at most two copies of what this rank writes.
Storage that is slower than the save period does not slow the loop down: a newer snapshot replaces the waiting one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from training.checkpoint.host_copy import HostCopy
from training.checkpoint.late_metrics import LateValidations
from training.checkpoint.manifest import LOOP_STATE_FILE, Identity, LoopState, TrainProgress
from training.checkpoint.ranks import Draft, Waiting, WritingRanks
from training.checkpoint.retention import Retention
from training.checkpoint.stateful import CollectedState, StateRegistry
from training.checkpoint.store import CheckpointStore, bytes_writer


@dataclass(frozen=True, kw_only=True)
class CommittedCheckpoint:
    """A checkpoint that is on storage, manifest included.

    Attributes:
        step: optimizer steps done.
        path: its folder.
        bytes: size of its files.
        stall_seconds: how long the loop waited for it.
        write_seconds: how long the thread wrote, hashed and pruned.
        superseded: steps whose snapshots this one replaced because storage was slower than the save period.
        warnings: other problems, e.g. an old checkpoint that could not be removed.
    """

    step: int
    path: Path
    bytes: int
    stall_seconds: float
    write_seconds: float
    superseded: tuple[int, ...]
    warnings: tuple[str, ...]


@dataclass(kw_only=True)
class _Snapshot:
    """A filled host copy and everything else that its checkpoint needs."""

    tensors: HostCopy
    headers: dict[str, dict[str, str]]
    step: int
    loop_state: bytes
    metric: float | None
    awaits_metric: bool
    superseded: tuple[int, ...]
    stall_seconds: float = 0.0

    @property
    def is_ranked(self) -> bool:
        """Whether it has the metric that ranks checkpoints, or will have it."""
        return self.metric is not None or self.awaits_metric


class AsyncCheckpointer:
    """Saves the state of a run, or this rank's part of it. Only the loop's thread may call it.

    Where every rank has one, all of them call `reserve` and `save` at the same steps.

    `poll` and `close` raise the errors of the writing thread. A later `save` may succeed; the newest good checkpoint stays.
    """

    def __init__(
        self,
        store: CheckpointStore,
        *,
        ranks: WritingRanks,
        identity: Identity,
        retention: Retention,
        start_step: int,
        late: LateValidations | None = None,
    ) -> None:
        """Start the thread, which first removes the leftovers of crashed writers.

        Args:
            store: where to write.
            ranks: those that write.
            identity: the run, recorded in every manifest.
            retention: which checkpoints are kept.
            start_step: step of the checkpoint that the run resumes from, 0 for none. Later checkpoints are not part of this
                run's history (they failed verification, or an older one was chosen); the next commit removes them.
            late: validations that come after the commit.
        """
        self._store = store
        self._ranks = ranks
        self._identity = identity
        self._retention = retention
        self._start_step = start_step
        self._late = late or LateValidations(store, ranked_by="")
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._lock = Lock()
        # Guarded by the lock: both threads move snapshots between these.
        self._free = [HostCopy(), HostCopy()]
        self._waiting: _Snapshot | None = None
        # Used by the loop's thread only.
        self._reserved = False
        self._newest = start_step
        self._dropped: tuple[int, ...] = ()
        self._futures: deque[Future[CommittedCheckpoint | None]] = deque()
        self._committed: list[CommittedCheckpoint] = []
        # Used by the writing thread only.
        self._own_steps = {start_step} if start_step else set()
        self._warnings: list[str] = []
        if ranks.leads:
            self._futures.append(self._thread.submit(self._remove_unfinished))

    def reserve(self, states: StateRegistry) -> None:
        """Allocate host memory in the writing thread, so that the first `save` need not.

        Call it after the first optimizer step, when the optimizer has its state. After a `save` it does nothing.
        """
        if self._reserved:
            return
        self._reserved = True
        state, _ = self._ranks.collect(states, is_waiting=False)
        self._futures.append(self._thread.submit(self._allocate, self._take_free(), state))

    def save(
        self,
        progress: TrainProgress,
        states: StateRegistry,
        *,
        metric: float | None,
        awaits_metric: bool = False,
        final: bool = False,
    ) -> float:
        """Copy the state and schedule its write; returns the seconds that the caller waited.

        A waiting snapshot is replaced by a newer one, unless it has or awaits a metric and the newer one does not: then the newer one
        is dropped. If some ranks have begun to write the waiting one, all write it: a newer one without a metric is dropped, one
        with a metric is saved once that is done. A step that is already committed is not written again, so evaluate before saving.

        Args:
            progress: how far the run has come.
            states: the states to save; they may change once this returns.
            metric: the metric that ranks checkpoints, None if it was not measured at this step.
            awaits_metric: it will be measured once the checkpoint is committed.
            final: return only when the checkpoint is committed or has failed; never dropped.

        Raises:
            TypeError: a state holds a value that is neither a tensor nor JSON.
        """
        began = time.perf_counter()
        # Taken first: no thread begins to write it while the ranks agree.
        waiting = self._take_waiting()
        try:
            state, held = self._ranks.collect(states, is_waiting=waiting is not None)
            loop_state = LoopState.of(progress, state.values).encode()
        except BaseException:
            if waiting is not None:
                self._submit(waiting)
            raise
        is_ranked = metric is not None or awaits_metric
        if held is Waiting.SOME or (waiting is not None and waiting.is_ranked and not is_ranked):
            if not is_ranked and not final:
                self._drop(progress.step, waiting)
                return time.perf_counter() - began
            if waiting is not None:
                self._submit(waiting)
            wait(self._futures)
            waiting = None
        if waiting is not None:
            self._dropped += (*waiting.superseded, waiting.step)
        self._reserved = True
        snapshot = _Snapshot(
            tensors=waiting.tensors if waiting else self._take_free(),
            headers=state.headers,
            step=progress.step,
            loop_state=loop_state,
            metric=metric,
            awaits_metric=awaits_metric,
            # An interruption may save a step that is already waiting.
            superseded=tuple(step for step in self._dropped if step != progress.step),
        )
        self._dropped = ()
        self._newest = progress.step
        snapshot.tensors.fill(state.tensors)
        snapshot.stall_seconds = time.perf_counter() - began
        self._submit(snapshot)
        if final:
            wait(self._futures)
        return time.perf_counter() - began

    def prune(self) -> None:
        """Remove what need not be kept, in the writing thread, because checkpoints have got their metrics; commits do so by themselves."""
        self._futures.append(self._thread.submit(self._prune_late))

    def poll(self) -> list[CommittedCheckpoint]:
        """Checkpoints committed since the last call, oldest first.

        Raises:
            CheckpointError: one could not be written. Those committed before are returned by the next call.
        """
        self._collect()
        committed, self._committed = self._committed, []
        return committed

    def close(self) -> None:
        """Wait for pending writes and end the thread; then `poll` returns the last commits.

        Raises:
            CheckpointError: a checkpoint could not be written.
        """
        self._thread.shutdown()
        self._collect()

    def __enter__(self) -> AsyncCheckpointer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _collect(self) -> None:
        while self._futures and self._futures[0].done():
            if committed := self._futures.popleft().result():
                self._committed.append(committed)

    def _drop(self, step: int, waiting: _Snapshot | None) -> None:
        """Keep the waiting snapshot, if there still is one, and report a newer step with it or with the next."""
        dropped = () if step == self._newest else (step,)
        if waiting is None:
            self._dropped += dropped
        else:
            waiting.superseded += dropped
            self._submit(waiting)

    def _take_waiting(self) -> _Snapshot | None:
        with self._lock:
            waiting, self._waiting = self._waiting, None
        return waiting

    def _take_free(self) -> HostCopy:
        with self._lock:
            return self._free.pop()

    def _submit(self, snapshot: _Snapshot) -> None:
        with self._lock:
            self._waiting = snapshot
        self._futures.append(self._thread.submit(self._write_waiting))

    # The methods below run in the writing thread.

    def _remove_unfinished(self) -> None:
        self._warnings += _not_removed(self._store.remove_unfinished)

    def _allocate(self, copy: HostCopy, state: CollectedState) -> None:
        copy.allocate(state.tensors)
        with self._lock:
            self._free.append(copy)

    def _write_waiting(self) -> CommittedCheckpoint | None:
        snapshot = self._take_waiting()
        if snapshot is None:  # A newer one replaced it and follows.
            return None
        try:
            return None if snapshot.step in self._own_steps else self._write(snapshot)
        finally:
            with self._lock:
                self._free.append(snapshot.tensors)

    def _write(self, snapshot: _Snapshot) -> CommittedCheckpoint | None:
        began = time.perf_counter()
        files = snapshot.tensors.writers(snapshot.headers)
        if self._ranks.leads:
            files[LOOP_STATE_FILE] = bytes_writer(snapshot.loop_state)
        manifest = self._ranks.commit(
            self._store,
            Draft(
                step=snapshot.step,
                identity=self._identity,
                metric=snapshot.metric,
                files=files,
                expected_bytes=snapshot.tensors.nbytes + len(snapshot.loop_state),
            ),
        )
        self._own_steps.add(snapshot.step)
        if manifest is None:
            return None
        warnings = (*self._warnings, *_not_removed(self._prune))
        self._warnings.clear()
        return CommittedCheckpoint(
            step=snapshot.step,
            path=self._store.path(snapshot.step),
            bytes=manifest.total_bytes,
            stall_seconds=snapshot.stall_seconds,
            write_seconds=time.perf_counter() - began,
            superseded=snapshot.superseded,
            warnings=warnings,
        )

    def _prune_late(self) -> None:
        self._warnings += _not_removed(self._prune)

    def _prune(self) -> list[str]:
        awaited = self._late.awaited  # before the metrics: those of a checkpoint come before it is no longer awaited
        metrics = self._late.metrics()
        of_this_run = {
            step: metric for step, metric in metrics.items() if step <= self._start_step or step in self._own_steps
        }
        return self._store.keep_only(self._retention.retained(of_this_run) | awaited)


def _not_removed(remove: Callable[[], list[str]]) -> list[str]:
    """The warnings of a removal; one if storage cannot be listed."""
    try:
        return remove()
    except OSError as error:
        return [f"old checkpoints were not removed: {error}"]
