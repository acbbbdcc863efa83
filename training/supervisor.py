"""The driver of a run: starts groups of workers until the run is done, shows what happens, answers Ctrl-C.

No torch, Ray or MLflow is imported here: workers, launcher and follower do that in their own time, and neither a refusal nor the first
line of progress waits for them.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import FrameType

from observability.progress import ProgressView
from observability.runlog import Event, Notice, Phase, RunEnded, RunLogReader, RunLogWriter, RunStarted, TrainingStarted
from training import environment, failures
from training.checkpoint.store import committed_steps
from training.config.schema import TrainingSettings
from training.errors import Interrupted, PlatformError, TrainingFailedError
from training.failures import Failure
from training.launch import make_launcher
from training.launch.task import Launcher, Outcome, RankTask, WorkersFailedError
from training.restart import Decision, RestartPolicy
from training.rundir import RunDirectory
from training.tracking.process import FollowerProcess

_PUMP_SECONDS = 0.1


class Supervisor:
    """Drives one run from one process."""

    def __init__(self, settings: TrainingSettings, run: RunDirectory, *, view: ProgressView) -> None:
        self._settings = settings
        self._run = run
        self._view = view
        self._leads = settings.scale.node_rank == 0
        self._log = RunLogWriter(run.path)
        self._policy = RestartPolicy(max_restarts=settings.scale.max_restarts)
        self.follower: FollowerProcess | None = None
        """Delivers the run to MLflow; None until training has begun, and where tracking is off."""

    def run(self) -> Outcome:
        """Drive the run to its end and return the outcome of its last group of workers, `done` or `stopped`.

        Raises:
            PlatformError: the run failed; the error of the rank that failed first, in its own words.
            Interrupted: a second Ctrl-C ended the workers before they had committed.
        """
        offset = self._run.events.stat().st_size if self._run.events.exists() else 0
        if self._leads:
            failures.clear(self._run.path)
            self._run.clear_stop()
        settings = self._settings.model_dump(mode="json")
        self._emit(RunStarted(run=self._run.name, settings=settings, environment=environment.describe()))
        launcher = make_launcher(self._settings.scale, scratch=self._run.path.resolve().parent.parent / "ray")
        with closing(self._log), self._showing(offset), self._answering_signals():
            try:
                with self._stopping(launcher):
                    outcome = self._attempts(launcher)
            except KeyboardInterrupt:
                message = "stopped before the current step was committed; the newest checkpoint is from before it"
                self._emit(RunEnded(status="interrupted", step=self._committed_step(), message=message))
                raise Interrupted(message, remedy=f"make resume NAME={self._run.name} goes on from there") from None
            except Exception as error:
                self._emit(RunEnded(status="failed", step=self._committed_step(), message=str(error)))
                raise
            status = "done" if outcome.status == "done" else "interrupted"
            self._emit(RunEnded(status=status, step=outcome.step, weights_sha256=outcome.weights_sha256))
            return outcome

    def _emit(self, event: Event) -> None:
        """Log an event. Of a run on several machines the driver of the first one speaks for all."""
        if self._leads:
            self._log.write(event)

    def _committed_step(self) -> int:
        return max(committed_steps(self._run.checkpoints), default=0)

    @contextmanager
    def _stopping(self, launcher: Launcher) -> Iterator[None]:
        """Stop what the launcher has started when the block ends, also where there is no room to log that."""
        with closing(launcher):
            try:
                yield
            finally:
                self._emit(Phase(name="finish"))

    def _attempts(self, launcher: Launcher) -> Outcome:
        """Start groups of workers until one ends well, or the policy says that another would not help."""
        attempt = 0
        while True:
            task = RankTask(settings=self._settings, run_directory=self._run.path.resolve(), attempt=attempt)
            try:
                return launcher.launch(task, on_phase=lambda name: self._emit(Phase(name=name)))
            except WorkersFailedError as error:
                failure = failures.cause(self._run.path, attempt=attempt, launcher_view=str(error))
            if self._policy.decide(failure, restarts=attempt) is Decision.FAIL:
                raise _as_error(failure, self._run)
            attempt += 1
            self._emit(
                Notice(
                    level="warning",
                    message=f"{failure.headline}; starting again from the newest checkpoint "
                    f"(restart {attempt} of {self._policy.max_restarts})",
                )
            )

    @contextmanager
    def _showing(self, offset: int) -> Iterator[None]:
        """Hand the run's events to the view as they are written, from `offset` on, in a thread of its own."""
        reader = RunLogReader(self._run.path, offset=offset)
        is_over = threading.Event()

        def show() -> None:
            while True:
                last = is_over.wait(_PUMP_SECONDS)
                for event in reader.read_new():
                    self._view.handle(event)
                    if isinstance(event, TrainingStarted) and self._leads:
                        self._begin_to_keep()
                self._view.tick()
                if last:
                    return

        thread = threading.Thread(target=show, name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _begin_to_keep(self) -> None:
        """What waits until the ranks have taken the settings and are ready.

        Settings that they refuse must not replace those that the run can be resumed with. MLflow's follower starts no sooner because
        until then every second of the CPUs goes to the start.
        """
        try:
            self._run.write_settings(self._settings)
        except (
            OSError
        ) as error:  # a full disk ends the run elsewhere, with what to do; this thread has to go on showing it
            self._view.say(f"the settings could not be kept in {self._run.settings_file}: {error.strerror}")
        if self._settings.tracking.enabled and self.follower is None:
            self.follower = FollowerProcess(self._run.path)

    @contextmanager
    def _answering_signals(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM asks the workers to commit and stop; the second ends them where they are."""
        is_asked = False

        def answer(number: int, frame: FrameType | None) -> None:
            del frame
            nonlocal is_asked
            if is_asked:
                raise KeyboardInterrupt
            is_asked = True
            self._run.request_stop()
            name = signal.Signals(number).name
            self._emit(
                Notice(level="warning", message=f"{name}: saving and stopping at the next step; once more ends at once")
            )

        before = {number: signal.signal(number, answer) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _as_error(failure: Failure, run: RunDirectory) -> PlatformError:
    """The error the command ends with: the rank's own words, its traceback first where there is one."""
    text = f"{failure.trace}\n{failure.headline}" if failure.trace else failure.message
    logs = f"the logs of all ranks are in {run.logs}; make resume NAME={run.name} goes on from the newest checkpoint"
    error = TrainingFailedError(text, remedy=failure.remedy or logs)
    error.status = type(error.status)(failure.status)
    return error
