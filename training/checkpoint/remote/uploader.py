"""Copies a run's committed checkpoints to its bucket, in a thread, and reports what became of it.

There is no queue of copies to grow: whenever the thread is free, it takes the newest checkpoint that the run's folder has and the bucket
lacks, then the best ones that are kept. So one upload is under way, and of those that wait the newest is next.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from observability.objective_metrics import ranked
from observability.runlog import CheckpointUploaded, CheckpointUploadFailed, Event, Notice
from training.checkpoint.manifest import Manifest
from training.checkpoint.remote.bucket import CancelledError, RemoteStoreError
from training.checkpoint.remote.lease import LeaseLostError
from training.checkpoint.remote.tier import RemoteTier
from training.checkpoint.retention import Retention
from training.checkpoint.store import CheckpointStore

UPLOAD_THREAD: Final = "upload"
"""Name of the thread."""

_FIRST_RETRY = 5.0
_LONGEST_RETRY = 60.0
"""Seconds after a failed upload, doubled each time: after the retries of every request."""

_CLOSE_SECONDS = 5.0
"""A request that is not answered cannot be given up before its timeout; it ends with the process."""

_LESS_PRIORITY = 10
"""Added to the niceness."""

_LAST_ATTEMPTS = 3
"""Failed attempts at the end of a run, after which it waits no longer."""


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """The upload that is under way.

    Attributes:
        step: of the checkpoint.
        bytes: its size.
        sent: bytes sent so far, repeated ones included.
    """

    step: int
    bytes: int
    sent: int


class Uploader:
    """Keeps the bucket's checkpoints like those of the run's folder. Its methods are for one thread, its work is in another."""

    def __init__(
        self,
        tier: RemoteTier,
        store: CheckpointStore,
        *,
        beside: Callable[[], Mapping[str, Path]],
        retention: Retention,
        start_step: int,
        confirm: Callable[[], None],
        cancel: Callable[[], None],
        first_retry: float = _FIRST_RETRY,
    ) -> None:
        """Start the thread, which first removes what crashed uploads have left.

        Args:
            tier: the checkpoints in the bucket.
            store: those in the run's folder.
            beside: other files to keep in the bucket, by name; those that have changed are uploaded with the next checkpoint.
            retention: which checkpoints of the bucket are kept.
            start_step: step that the run resumes from. Later ones in the bucket are not part of its history; the next upload removes them.
            confirm: raises if another driver writes to the bucket.
            cancel: ends the transfers of the bucket.
            first_retry: seconds after the first of several failures.
        """
        self._tier = tier
        self._store = store
        self._beside = beside
        self._retention = retention
        self._start_step = start_step
        self._confirm = confirm
        self._cancel = cancel
        self._first_retry = first_retry
        self._reports: SimpleQueue[Event] = SimpleQueue()
        self._changed = threading.Condition()
        # Guarded by the condition.
        self._is_wanted = True
        self._is_over = False
        self._is_idle = False
        self._failures = 0
        self._transfer: Transfer | None = None
        # Used by the thread only.
        self._known: dict[int, Manifest] = {}  # the good checkpoints in the bucket
        self._sent: dict[str, bytes] = {}
        self._created: str | None = None
        self._is_clean = False
        self._damaged: set[int] = set()
        self._own_steps: set[int] = set()
        self._failing_since = 0.0
        self._thread = threading.Thread(target=self._run, name=UPLOAD_THREAD, daemon=True)
        self._thread.start()

    def notify(self) -> None:
        """The run's folder has a new checkpoint."""
        with self._changed:
            self._is_wanted, self._is_idle = True, False
            self._changed.notify_all()

    def poll(self) -> list[Event]:
        """Uploads, failures and recoveries since the last call, oldest first."""
        found = []
        while True:
            try:
                found.append(self._reports.get_nowait())
            except Empty:
                return found

    @property
    def transfer(self) -> Transfer | None:
        """The upload that is under way."""
        with self._changed:
            return self._transfer

    def wait(self, seconds: float) -> bool:
        """Wait until the bucket has everything, or has failed too often; whether it is over."""
        with self._changed:
            self._changed.wait_for(self._is_settled, timeout=seconds)
            return self._is_settled()

    def finish(self) -> None:
        """Count failures from now on, to know when to give up, and try again at once."""
        with self._changed:
            self._failures = 0
            self._is_wanted, self._is_idle = True, False
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread. An upload that is under way is given up."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._cancel()
        self._thread.join(_CLOSE_SECONDS)

    def _is_settled(self) -> bool:
        return self._is_idle or self._is_over or self._failures >= _LAST_ATTEMPTS

    # The methods below run in the thread.

    def _run(self) -> None:
        _yield_cores()
        retry_in: float | None = None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_wanted or self._is_over, timeout=retry_in)
                if self._is_over:
                    return
                self._is_wanted = False
            retry_in = self._attempt()

    def _attempt(self) -> float | None:
        """Upload what the bucket lacks; returns the seconds to the next attempt, None if there is nothing to repeat."""
        try:
            self._prepare()
            while (manifest := self._next()) is not None:
                self._upload(manifest)
        except CancelledError:
            return None
        except LeaseLostError as error:
            self._report_failure(str(error))
            self._say("error", f"{error}: no more checkpoints are copied there")
            with self._changed:
                self._is_over = True
                self._changed.notify_all()
            return None
        except (RemoteStoreError, OSError) as error:
            return self._failed(error)
        with self._changed:
            self._is_idle = not self._is_wanted
            self._changed.notify_all()
        return None

    def _prepare(self) -> None:
        """Remove leftovers and look at what is there, once, and again after a failure."""
        if self._is_clean:
            return
        self._confirm()
        self._tier.remove_unfinished()
        self._look()
        self._created = max((manifest.created for manifest in self._known.values()), default=None)
        self._is_clean = True

    def _look(self) -> None:
        self._known = {one.step: one.manifest for one in self._tier.checkpoints() if not one.problems}

    def _next(self) -> Manifest | None:
        """The checkpoint to upload next: the newest, then the best ones."""
        local = self._local()
        kept = self._kept(local)
        metrics = {step: manifest.metric for step, manifest in local.items()}
        best = ranked(metrics, higher_is_better=self._retention.higher_is_better)
        for step in dict.fromkeys([*sorted(local)[-1:], *best, *sorted(local, reverse=True)]):
            there = self._known.get(step)
            if step in kept and (there is None or there.digest != local[step].digest):
                return local[step]
        return None

    def _local(self) -> dict[int, Manifest]:
        return {one.step: one for one in self._store.manifests() if one.step not in self._damaged}

    def _kept(self, local: Mapping[int, Manifest]) -> frozenset[int]:
        """The steps to keep, of the run's folder and the bucket together.

        Decided apart, a checkpoint that is among the best of the folder and not of the bucket would be uploaded and removed without end.
        """
        there = {
            step: manifest
            for step, manifest in self._known.items()
            if step <= self._start_step or step in self._own_steps
        }
        return self._retention.retained({step: one.metric for step, one in {**there, **local}.items()})

    def _upload(self, manifest: Manifest) -> None:
        began = time.monotonic()
        with self._store.pinned(manifest.step):
            if problems := self._store.verify(manifest.step):
                # Pruned since it was chosen, because newer ones came; or damaged.
                if manifest.step in self._store.steps():
                    self._damaged.add(manifest.step)
                    message = (
                        f"{self._store.path(manifest.step)} is not copied to {self._tier.url}: {'; '.join(problems)}"
                    )
                    self._report_failure(message)
                    self._say("warning", message)
                return
            self._begin(manifest)
            try:
                self._upload_beside()
                self._tier.upload(
                    manifest, self._store.path(manifest.step), confirm=self._confirm_both, on_bytes=self._count
                )
            finally:
                self._end()
        self._own_steps.add(manifest.step)
        self._created = max(self._created or "", manifest.created)
        self._recovered()
        self._reports.put(
            CheckpointUploaded(
                step=manifest.step,
                location=self._tier.url,
                bytes=manifest.total_bytes,
                seconds=time.monotonic() - began,
            )
        )
        self._prune()

    def _confirm_both(self) -> None:
        """Confirm that nobody else writes, and that the run still wants this: a small file may arrive after `cancel`."""
        with self._changed:
            if self._is_over:
                raise CancelledError(self._tier.url, reason="cancelled")
        self._confirm()

    def _upload_beside(self) -> None:
        for name, path in self._beside().items():
            data = path.read_bytes()
            if self._sent.get(name) != data:
                self._tier.put(name, data)
                self._sent[name] = data

    def _prune(self) -> None:
        self._look()
        kept = self._kept(self._local())
        self._tier.keep_only(kept)
        self._known = {step: manifest for step, manifest in self._known.items() if step in kept}

    def _failed(self, error: RemoteStoreError | OSError) -> float:
        self._is_clean = False
        self._report_failure(str(error))
        with self._changed:
            self._failures += 1
            failures = self._failures
            self._changed.notify_all()
        wait = min(self._first_retry * 2.0 ** (failures - 1), _LONGEST_RETRY)
        if not self._failing_since:
            self._failing_since = time.monotonic()
            newest = (
                "none is there" if self._created is None else f"the newest there is {_age(self._created):.0f} s old"
            )
            self._say(
                "warning",
                f"{error}; checkpoints are kept in the run's folder only until the bucket takes them, and {newest}; tried again in "
                f"{wait:.0f} s and then at longer intervals",
            )
        return wait

    def _recovered(self) -> None:
        if not self._failing_since:
            return
        seconds = time.monotonic() - self._failing_since
        self._failing_since = 0.0
        with self._changed:
            self._failures = 0
        self._say("info", f"{self._tier.url} takes checkpoints again, after {seconds:.0f} s")

    def _begin(self, manifest: Manifest) -> None:
        with self._changed:
            self._transfer = Transfer(step=manifest.step, bytes=manifest.total_bytes, sent=0)

    def _count(self, sent: int) -> None:
        with self._changed:
            if self._transfer is not None:
                done = self._transfer
                self._transfer = Transfer(step=done.step, bytes=done.bytes, sent=done.sent + sent)

    def _end(self) -> None:
        with self._changed:
            self._transfer = None

    def _report_failure(self, reason: str) -> None:
        self._reports.put(CheckpointUploadFailed(location=self._tier.url, reason=reason))

    def _say(self, level: str, message: str) -> None:
        self._reports.put(Notice(level=level, message=message))


def _yield_cores() -> None:
    """Let the training have the cores first: lower the priority of this thread, and of those it starts for transfers."""
    if sys.platform == "linux":  # where threads have priorities of their own
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _LESS_PRIORITY)


def _age(created: str) -> float:
    then = datetime.fromisoformat(created)
    return (datetime.now(then.tzinfo) - then).total_seconds()
