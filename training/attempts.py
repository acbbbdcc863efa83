"""The attempts of a run: worker groups are started until one ends without a failure or a restart would not help."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace

from observability.quantities import duration
from observability.runlog import Event, Notice, Phase, WorkersFailed, WorkersMoved
from training import failures
from training.checkpoint.store import committed_steps
from training.code.kept import RunCode
from training.config.schema import TrainingSettings
from training.errors import PlatformError, TrainingFailedError
from training.failures import Failure
from training.launch.task import Launcher, Outcome, RankTask, WorkersFailedError
from training.recovery.budgets import budgets_of
from training.recovery.causes import Cause
from training.recovery.poison import describe_poison
from training.recovery.policy import Incident, RecoveryPolicy, Restart, Stop
from training.rundir import RunDirectory
from training.user_code import named_at_source

_STOP_POLL_SECONDS = 0.1


def run_attempts(
    settings: TrainingSettings,
    run: RunDirectory,
    *,
    launcher: Launcher,
    code: RunCode | None,
    emit: Callable[[Event], None],
    resume: str = "",
) -> Outcome:
    """Run a run to its end; returns the outcome of the last worker group, `done` or `stopped`.

    Args:
        settings: of the run.
        run: its folder.
        launcher: starts the worker groups; remains open.
        code: the run's own code.
        emit: logs phases, failures and restarts.
        resume: how to resume after a failure, for its remedy; empty is the command that resumes the run.

    Raises:
        PlatformError: the run failed; with the message of the rank that failed first.
    """
    policy = RecoveryPolicy(
        budgets=budgets_of(settings), progress_steps=settings.recovery.progress_steps, seed=run.name
    )
    incidents: list[Incident] = []
    attempt = -1
    while True:
        attempt += 1
        began = time.monotonic()
        task = RankTask(settings=settings, run_directory=run.path.resolve(), attempt=attempt, code=code)
        try:
            outcome = launcher.launch(
                task,
                on_phase=lambda name: emit(Phase(name=name)),
                notify=lambda message: emit(Notice(level="warning", message=message)),
            )
        except WorkersFailedError as error:
            scale = settings.scale.model_copy(update={"workers": error.world or settings.scale.workers})
            failure = failures.cause(run.path, attempt=attempt, ended=error, scale=scale)
        else:
            if outcome.status == "moving" and not run.stop_is_requested():
                emit(WorkersMoved(step=outcome.step, reason=outcome.reason))
                emit(
                    Notice(level="warning", message=f"{outcome.reason}: saved step {outcome.step}, continuing from it")
                )
                continue
            if outcome.status == "done":
                return outcome
            return replace(outcome, status="stopped", step=outcome.step or _committed(run))
        incidents.append(
            Incident(attempt=attempt, began=began, ended=time.monotonic(), failure=failure, committed=_committed(run))
        )
        if failure.kind == failures.STOPPED_WAITING:
            emit(Notice(level="warning", message=failure.headline))
            return Outcome(status="stopped", step=_committed(run))
        decision = policy.decide(incidents)
        emit(_event(incidents[-1], decision))
        if isinstance(decision, Stop):
            remedy = failure.remedy or f"the logs of all ranks are in {run.logs}; {resume or _resume(run, code)}"
            reason = "\n".join(filter(None, [decision.reason, describe_poison(decision.poison, settings, run.path)]))
            raise _as_error(failure, remedy=remedy, code=code, reason=reason)
        emit(Notice(level="warning", message=f"{failure.headline}; {_restart_in_words(decision, failure)}"))
        if run.stop_is_requested() or (decision.delay and not _waited(decision.delay, run, emit)):
            return Outcome(status="stopped", step=_committed(run))


def _committed(run: RunDirectory) -> int:
    return max(committed_steps(run.checkpoints), default=0)


def _event(incident: Incident, decision: Restart | Stop) -> WorkersFailed:
    return WorkersFailed(
        attempt=incident.attempt,
        reason=incident.failure.headline,
        restarts=isinstance(decision, Restart),
        cause=incident.cause.value,
        delay_seconds=decision.delay if isinstance(decision, Restart) else 0.0,
    )


def _restart_in_words(restart: Restart, failure: Failure) -> str:
    """`restarting in 2 s (restart 1 of 2 for lost processes)`."""
    delay = f" in {duration(restart.delay)}" if restart.delay else ""
    budget, cause = restart.budget, failure.cause
    bound = "" if budget.restarts is None else f" of {budget.restarts}"
    deadline = "" if budget.deadline is None else f", within {duration(budget.deadline)}"
    return f"restarting{delay} (restart {restart.number}{bound} for {cause.plural}{deadline})"


def _waited(seconds: float, run: RunDirectory, emit: Callable[[Event], None]) -> bool:
    """Wait before a restart; False if the run is asked to stop meanwhile."""
    emit(Phase(name="backoff"))
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if run.stop_is_requested():
            return False
        time.sleep(min(left, _STOP_POLL_SECONDS))
    return True


def _as_error(failure: Failure, *, remedy: str, code: RunCode | None, reason: str) -> PlatformError:
    """The error the command ends with: the rank's message, with its traceback if there is one."""
    text = f"{failure.trace}\n{failure.headline}" if failure.trace else failure.message
    if failure.rank >= 0 and failure.cause in {Cause.HANG, Cause.HARDWARE}:  # not of what it computes, but of this rank
        text = f"rank {failure.rank}: {text}"
    if code is not None:
        text = named_at_source(text, folder=code.folder, source=code.source)
    if reason:
        text += f"\n{reason}"
    error = TrainingFailedError(text, remedy=remedy)
    error.status = type(error.status)(failure.status)
    if failure.full_disk is not None:
        error.__cause__ = OSError(failure.full_disk, os.strerror(failure.full_disk))
    return error


def _resume(run: RunDirectory, code: RunCode | None) -> str:
    if code is None:
        return f"{run.command('resume')} resumes from the newest checkpoint"
    return f"{run.command('resume')} CODE=folder resumes with corrected code"
