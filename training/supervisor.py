"""The driver of a run: starts worker groups until the run is done, shows progress, handles Ctrl-C.

Workers, launcher and follower import torch, Ray and MLflow; this module does not, so errors and the first line of progress do not wait.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

from infra.spec.signals import second_signal, stopping
from observability.progress import ProgressView
from observability.runlog import (
    Event,
    Notice,
    Phase,
    ProfileAnswered,
    RunEnded,
    RunLogReader,
    RunLogWriter,
    RunStarted,
    TrainingStarted,
)
from training import environment, failures
from training.attempts import run_attempts
from training.checkpoint.store import committed_steps
from training.code import kept
from training.code.kept import RunCode
from training.config.schema import TrainingSettings
from training.errors import Interrupted
from training.launch import make_launcher
from training.launch.task import Launcher, Outcome
from training.profiling.judge import Judge
from training.rundir import RunDirectory
from training.tracking.process import FollowerProcess

_PUMP_SECONDS = 0.1


class Supervisor:
    """Drives one run from one process."""

    def __init__(
        self, settings: TrainingSettings, run: RunDirectory, *, code: RunCode | None = None, view: ProgressView
    ) -> None:
        self._settings = settings
        self._run = run
        self._code = code
        self._view = view
        self._is_first_node = settings.scale.node_rank == 0
        self._log = RunLogWriter(run.path)
        self.follower: FollowerProcess | None = None
        """Delivers the run to MLflow; None before training starts and if tracking is off."""

    def run(self) -> Outcome:
        """Drive the run to its end; returns the outcome of the last worker group, `done` or `stopped`.

        Raises:
            PlatformError: the run failed; with the message of the rank that failed first.
            Interrupted: a second Ctrl-C ended the workers before they committed.
        """
        offset = self._run.events.stat().st_size if self._run.events.exists() else 0
        if self._is_first_node:
            failures.clear(self._run.path)
            self._run.clear_requests()
        settings = self._settings.model_dump(mode="json")
        price = self._settings.run.dollars_per_hour
        described = environment.describe(None if self._code is None else self._code.describe())
        self._emit(
            RunStarted(
                run=self._run.name,
                settings=settings,
                environment=described,
                submitted=environment.submitted(),
                dollars_per_hour=price or environment.dollars_per_hour(),
                dollars_per_worker_hour=0.0 if price else environment.dollars_per_worker_hour(),
            )
        )
        launcher = make_launcher(self._settings.scale, scratch=self._run.path.resolve().parent.parent / "ray")
        with closing(self._log), self._showing_progress(offset), stopping(self._ask_to_stop):
            try:
                with self._closing(launcher):
                    outcome = run_attempts(
                        self._settings, self._run, launcher=launcher, code=self._code, emit=self._emit
                    )
            except KeyboardInterrupt:
                message = "stopped without saving the current step"
                self._emit(RunEnded(status="interrupted", step=self._committed_step(), message=message))
                remedy = f"{self._run.command('resume')} resumes from the newest checkpoint"
                raise Interrupted(message, remedy=remedy) from None
            except Exception as error:
                self._emit(RunEnded(status="failed", step=self._committed_step(), message=str(error)))
                raise
            status = "done" if outcome.status == "done" else "interrupted"
            self._emit(RunEnded(status=status, step=outcome.step, weights_sha256=outcome.weights_sha256))
            return outcome

    def _emit(self, event: Event) -> None:
        """Log an event. Of a multi-node run, only the driver of node 0 logs."""
        if self._is_first_node:
            self._log.write(event)

    def _committed_step(self) -> int:
        return max(committed_steps(self._run.checkpoints), default=0)

    @contextmanager
    def _closing(self, launcher: Launcher) -> Iterator[None]:
        """Close the launcher when the block ends, even if the disk is too full to log that."""
        with closing(launcher):
            try:
                yield
            finally:
                self._emit(Phase(name="finish"))

    @contextmanager
    def _showing_progress(self, offset: int) -> Iterator[None]:
        """Act on the run's events from `offset` on and pass them on to the view, as they are written, in a thread."""
        reader = RunLogReader(self._run.path, offset=offset)
        judge = Judge(self._run.path)
        is_over = threading.Event()

        def pump() -> None:
            for event in reader.read_new():
                if isinstance(event, TrainingStarted) and self._is_first_node:
                    self._on_training_started()
                if isinstance(event, ProfileAnswered) and self._is_first_node:
                    judge.handle(event)
                self._view.handle(event)
            self._view.tick()

        def show() -> None:
            while not is_over.wait(_PUMP_SECONDS):
                pump()
            pump()
            judge.finish()
            pump()

        thread = threading.Thread(target=show, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _on_training_started(self) -> None:
        """Keep the settings and the code, and start the MLflow follower, once the ranks are ready.

        Settings and code that the ranks refuse must not replace those that the run can be resumed with. An earlier follower would slow
        down the start of the ranks.
        """
        try:
            self._run.write_settings(self._settings)
            if self._code is not None:
                kept.use(self._run.path, self._code)
        except OSError as error:  # the main thread reports a full disk; this one keeps showing progress
            self._view.say(f"the settings could not be written to {self._run.settings_file}: {error.strerror}")
        if self._settings.tracking.enabled and self.follower is None:
            self.follower = FollowerProcess(self._run.path)

    def _ask_to_stop(self, number: signal.Signals) -> None:
        """Ask the workers to commit and stop."""
        self._run.request_stop()
        message = f"{number.name}: saving and stopping at the next step{second_signal(number)}"
        self._emit(Notice(level="warning", message=message))
