"""One trial's run, from evaluation to evaluation: what an actor of Ray Tune does between two results."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from observability.runlog import (
    Evaluated,
    Event,
    RunEnded,
    RunLogReader,
    RunLogWriter,
    RunStarted,
    TrainingStarted,
    read_all,
    select,
)
from training import environment, failures
from training.attempts import run_attempts
from training.code import kept
from training.code.kept import RunCode
from training.config.schema import TrainingSettings
from training.errors import PlatformError, TrainingFailedError
from training.launch.task import Launcher, Outcome
from training.rundir import RunDirectory
from tune.folder import SearchFolder
from tune.trial.clock import WorkerClock

LOCAL_POLL_SECONDS = 0.02
SHARED_POLL_SECONDS = 0.2
"""Time between two looks at the run's log on a file system of the network: each is a request, and all trials look."""

_STOP_SECONDS = 300.0
"""How long a run may take to save and stop: a large checkpoint on slow storage."""

_NOTHING = "the trial ended without an evaluation of its validation split"
_WITH_VALIDATION = "set data.validation_fraction, or tune on a dataset with a validation split"


class GatedLauncher(Launcher, Protocol):
    """A launcher whose attempts wait before each epoch."""

    def allow(self, until_epoch: int) -> None:
        """Let the current or next attempt train up to and including an epoch."""
        ...


@dataclass(frozen=True, kw_only=True)
class Report:
    """An evaluation.

    Attributes:
        epoch: epochs trained so far.
        step: optimizer steps trained so far.
        metrics: the loss and the objective's other metrics on the validation split.
        parameters: of the model.
        worker_seconds: seconds of all workers since the trial began, over all its drivers.
        is_last: the trial has trained all its epochs.
        weights_sha256: hash of its final weights; empty before.
    """

    epoch: int
    step: int
    metrics: dict[str, float]
    worker_seconds: float
    parameters: int = 0
    is_last: bool = False
    weights_sha256: str = ""


class TrialRun:
    """Trains one trial. Not thread-safe, except that it drives the run in a thread of its own."""

    def __init__(
        self,
        run: RunDirectory,
        settings: TrainingSettings,
        *,
        launcher: GatedLauncher,
        code: RunCode | None = None,
        recorded: Sequence[Report] = (),
        failure: str = "",
        epoch: int = 0,
        poll_seconds: float = LOCAL_POLL_SECONDS,
    ) -> None:
        """Prepare the run; nothing starts before `advance`.

        Args:
            run: its folder.
            settings: of the trial.
            launcher: starts its ranks; remains open.
            code: the user's own, which the search's folder keeps.
            recorded: evaluations of earlier drivers, to be returned again first.
            failure: with which it ended after them; empty if it has not failed.
            epoch: epochs whose evaluations are known already, besides the recorded ones.
            poll_seconds: time between two looks at the run's log.
        """
        self._run = run
        self._settings = settings
        self._launcher = launcher
        self._code = code
        self._recorded = list(recorded)
        self._failure = failure
        self._epoch = epoch
        self._poll_seconds = poll_seconds
        self._reader = RunLogReader(run.path, offset=run.events.stat().st_size if run.events.exists() else 0)
        self._clock = WorkerClock(run, settings.scale.workers)
        self._thread: threading.Thread | None = None
        self._outcome: Outcome | None = None
        self._error: BaseException | None = None
        self._total_steps = self._parameters = 0
        self._unreported: list[Evaluated] = []

    def advance(self) -> Report:
        """Train to the next evaluation.

        Raises:
            PlatformError: the run failed, or ended without an evaluation.
        """
        if self._recorded:
            report = self._recorded.pop(0)
            self._epoch = report.epoch
            return report
        if self._failure:
            raise TrainingFailedError(self._failure)
        self._launcher.allow(self._next_epoch())
        evaluated = self._await_evaluation()
        is_last = evaluated.step >= self._total_steps
        if is_last and self._thread is not None:
            self._join()
        self._epoch = evaluated.epoch
        return Report(
            epoch=evaluated.epoch,
            step=evaluated.step,
            metrics={"loss": evaluated.loss, **evaluated.metrics},
            worker_seconds=self._clock.seconds,
            parameters=self._parameters,
            is_last=is_last,
            weights_sha256=self._outcome.weights_sha256 if is_last and self._outcome is not None else "",
        )

    def _await_evaluation(self) -> Evaluated:
        """Train until the next evaluation is in the run's log."""
        if self._unreported:
            return self._unreported.pop(0)
        while True:
            is_over = self._thread is not None and not self._thread.is_alive()
            for event in self._reader.read_new():
                self._clock.count(event)
                # Otherwise it is of a driver before this one, which was still saving.
                if self._clock.is_running and (evaluated := self._evaluation_in(event)):
                    return evaluated
            if is_over:
                self._join()
                if self._outcome is not None and self._outcome.status == "done":
                    return self._last_evaluation()
            if self._thread is None:  # not yet, or it has waited at its gate for too long
                self._thread = threading.Thread(target=self._drive, name=self._run.name, daemon=True)
                self._thread.start()
            time.sleep(self._poll_seconds)

    def _evaluation_in(self, event: Event) -> Evaluated | None:
        """The next evaluation to report after an event of this driver, if it has come."""
        if isinstance(event, TrainingStarted):
            self._total_steps, self._parameters = event.total_steps, event.parameters
            self._unreported = self._evaluated_before(event.start_step)
            return self._unreported.pop(0) if self._unreported else None
        if isinstance(event, Evaluated) and event.split == "validation" and event.epoch > self._epoch:
            return event
        return None

    def _evaluated_before(self, step: int) -> list[Evaluated]:
        """Evaluations of earlier drivers, up to the checkpoint of a step, that ended before the search heard of them."""
        events = read_all(self._run.path)
        own = max(index for index, event in enumerate(events) if isinstance(event, RunStarted))
        found = {
            event.epoch: event
            for event in select(events[:own], Evaluated)
            if event.split == "validation" and event.epoch > self._epoch and event.step <= step
        }
        return [found[epoch] for epoch in sorted(found)]

    def _last_evaluation(self) -> Evaluated:
        """The last evaluation of a run that an earlier driver has brought to its end without reporting it."""
        found = [event for event in select(read_all(self._run.path), Evaluated) if event.split == "validation"]
        if not found:
            raise TrainingFailedError(_NOTHING, remedy=_WITH_VALIDATION)
        return found[-1]

    def _join(self) -> None:
        """Wait for the end of the thread; raises the error that it ended with."""
        assert self._thread is not None
        self._thread.join()
        self._thread = None
        if self._error is not None:
            raise self._error

    def _drive(self) -> None:
        try:
            with self._run.taken_over(), closing(RunLogWriter(self._run.path)) as log:
                self._outcome = self._run_to_its_end(log)
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            self._error = error

    def _run_to_its_end(self, log: RunLogWriter) -> Outcome:
        failures.clear(self._run.path)
        described = environment.describe(None if self._code is None else self._code.describe())
        log.write(
            RunStarted(
                run=self._run.name,
                settings=self._settings.model_dump(mode="json"),
                environment=described,
                dollars_per_hour=self._settings.run.dollars_per_hour,
            )
        )
        if self._code is not None:
            kept.share(self._code, of=_search_of(self._run), run=self._run.path)
        try:
            outcome = run_attempts(
                self._settings,
                self._run,
                launcher=self._launcher,
                code=self._code,
                emit=log.write,
                resume=_how_to_resume(self._run, has_code=self._code is not None),
            )
        except Exception as error:
            log.write(RunEnded(status="failed", step=0, message=str(error)))
            raise
        status = "done" if outcome.status == "done" else "interrupted"
        log.write(RunEnded(status=status, step=outcome.step, weights_sha256=outcome.weights_sha256))
        return outcome

    def stop(self) -> None:
        """Let the run save and stop, and wait for it; does nothing if it does not train.

        Raises:
            TimeoutError: it did not stop.
        """
        if self._thread is None:
            return
        self._run.stop_request.touch()
        self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            raise TimeoutError(f"trial {self._run.name} did not save and stop within {_STOP_SECONDS:g} s")

    def _next_epoch(self) -> int:
        """Epoch of the next evaluation."""
        every = self._settings.loop.evaluate_every
        return min((self._epoch // every + 1) * every, self._settings.loop.epochs)


def _search_of(run: RunDirectory) -> Path:
    """Folder of a trial's search: tune.folder."""
    return run.path.parents[1]


def _how_to_resume(run: RunDirectory, *, has_code: bool) -> str:
    """What to do about a failed trial: the search goes on without it, and continues with other code."""
    code = " CODE=folder" if has_code else ""
    others = f"{SearchFolder(_search_of(run)).command}{code} goes on with {'corrected code and ' if has_code else ''}the other trials"
    if environment.run_arguments() is not None:  # its user has no folder of the trial
        return others
    return f"{others}; make resume NAME={run.argument}{code} resumes this one by itself"


def failure_text(error: PlatformError) -> str:
    """Why a trial failed: the message of its rank, with its remedy."""
    said = str(error.args[0])
    # A traceback of the user's own code ends with what went wrong, which tables show.
    return f"{said.splitlines()[-1]}\n{error}" if said.startswith("Traceback") else str(error)
