"""Copies committed checkpoints to the run's bucket, and says what became of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from observability.runlog import Emit, Notice
from training.callbacks.callback import Callback
from training.checkpoint.remote.bucket import RunBucket
from training.checkpoint.remote.lease import confirm, writer_of
from training.checkpoint.remote.run_files import files_of
from training.checkpoint.remote.tier import RemoteTier
from training.checkpoint.remote.uploader import Uploader
from training.checkpoint.retention import Retention
from training.checkpoint.store import CheckpointStore
from training.checkpoint.writer import CommittedCheckpoint
from training.loop import Loop, StepRecord
from training.step_reducer import StepSums

_PROGRESS_SECONDS = 10.0


class RemoteCheckpoints(Callback):
    """Of rank 0. A bucket that fails is a warning: the run's folder has every checkpoint.

    The end of a run that has not failed waits for the newest checkpoint. It must come before `Checkpointing`, whose last commits it is
    told of when the run closes.
    """

    def __init__(
        self,
        bucket: RunBucket,
        store: CheckpointStore,
        *,
        run_directory: Path,
        retention: Retention,
        patience: float,
        emit: Emit,
    ) -> None:
        """Args: `patience` is how long the end of the run waits, in seconds; `run_directory` tells which driver it writes for."""
        self._bucket = bucket
        self._store = store
        self._run_directory = run_directory
        self._retention = retention
        self._patience = patience
        self._emit = emit
        self._uploader: Uploader | None = None
        self._has_ended = False

    def on_run_start(self, loop: Loop) -> None:
        """Start the thread, which first removes the leftovers of crashed uploads and copies what the bucket lacks."""
        token = writer_of(self._run_directory)
        self._uploader = Uploader(
            RemoteTier(self._bucket),
            self._store,
            beside=partial(files_of, self._run_directory),
            retention=self._retention,
            start_step=loop.progress.step,
            confirm=_nothing if token is None else partial(confirm, self._bucket, token),
            cancel=self._bucket.cancel,
        )

    def on_window(self, loop: Loop, steps: Sequence[StepRecord], sums: Sequence[StepSums]) -> None:
        """Report uploads as they end."""
        self._report()

    def on_checkpoint(self, loop: Loop, checkpoint: CommittedCheckpoint) -> None:
        """Have it copied."""
        if self._uploader is not None:
            self._uploader.notify()

    def on_run_end(self, loop: Loop) -> None:
        """The final state is committed."""
        self._has_ended = True

    def on_close(self, loop: Loop) -> None:
        """Wait for the newest checkpoint, unless the run has failed: then the next attempt copies it."""
        if self._uploader is None:
            return
        try:
            if self._has_ended:
                self._wait(self._uploader)
        finally:
            self._uploader.close()
            self._report()

    def _wait(self, uploader: Uploader) -> None:
        began = time.monotonic()
        uploader.finish()
        while not uploader.wait(min(_PROGRESS_SECONDS, left := self._patience - (time.monotonic() - began))):
            self._report()
            if left <= _PROGRESS_SECONDS:
                message = f"{self._bucket.location.url} lacks the newest checkpoint after checkpoint.remote_patience={self._patience:g} s"
                self._emit(
                    Notice(level="warning", message=f"{message}; the run's folder has it, and a resumed run copies it")
                )
                return
            if (transfer := uploader.transfer) is not None:
                done = f"{min(transfer.sent, transfer.bytes) >> 20} of {transfer.bytes >> 20} MiB"
                message = f"copying the checkpoint of step {transfer.step} to {self._bucket.location.url}: {done}"
                self._emit(Notice(level="info", message=message))

    def _report(self) -> None:
        if self._uploader is not None and (events := self._uploader.poll()):
            self._emit(*events)


def _nothing() -> None:
    """Without a driver there is no lease to confirm."""
