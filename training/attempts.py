"""The attempts of a run: worker groups are started until one ends without a failure or a restart would not help."""

from __future__ import annotations

import os
from collections.abc import Callable

from observability.runlog import Event, Notice, Phase, WorkersFailed
from training import failures
from training.code.kept import RunCode
from training.config.schema import TrainingSettings
from training.errors import PlatformError, TrainingFailedError
from training.failures import Failure
from training.launch.task import Launcher, Outcome, RankTask, WorkersFailedError
from training.restart import Decision, RestartPolicy
from training.rundir import RunDirectory
from training.user_code import named_at_source


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
    policy = RestartPolicy(max_restarts=settings.scale.max_restarts)
    attempt = 0
    earlier = None
    while True:
        task = RankTask(settings=settings, run_directory=run.path.resolve(), attempt=attempt, code=code)
        try:
            return launcher.launch(task, on_phase=lambda name: emit(Phase(name=name)))
        except WorkersFailedError as error:
            failure = failures.cause(run.path, attempt=attempt, ended=error, scale=settings.scale)
        decision = policy.decide(failure, restarts=attempt, earlier=earlier)
        emit(WorkersFailed(attempt=attempt, reason=failure.headline, restarts=decision is Decision.RESTART))
        if decision is Decision.FAIL:
            remedy = failure.remedy or f"the logs of all ranks are in {run.logs}; {resume or _resume(run, code)}"
            raise _as_error(failure, remedy=remedy, code=code, is_repeated=failure.repeats(earlier))
        attempt += 1
        earlier = failure
        emit(
            Notice(
                level="warning",
                message=f"{failure.headline}; restarting from the newest checkpoint "
                f"(restart {attempt} of {policy.max_restarts})",
            )
        )


def _as_error(failure: Failure, *, remedy: str, code: RunCode | None, is_repeated: bool) -> PlatformError:
    """The error the command ends with: the rank's message, with its traceback if there is one."""
    text = f"{failure.trace}\n{failure.headline}" if failure.trace else failure.message
    if code is not None:
        text = named_at_source(text, folder=code.folder, source=code.source)
    if is_repeated:
        text += "\nThe attempt before ended in the same way, so another restart would too."
    error = TrainingFailedError(text, remedy=remedy)
    error.status = type(error.status)(failure.status)
    if failure.full_disk is not None:
        error.__cause__ = OSError(failure.full_disk, os.strerror(failure.full_disk))
    return error


def _resume(run: RunDirectory, code: RunCode | None) -> str:
    if code is None:
        return f"make resume NAME={run.argument} resumes from the newest checkpoint"
    return f"make resume NAME={run.argument} CODE=folder resumes with corrected code"
