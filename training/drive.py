"""From settings to a finished run: the steps of `train` and `resume`, in order.

All checks run before a folder is created or a process is started.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING

from infra.spec.output import outliving_the_reader
from observability.goodput import GoodputLedger
from observability.line_file import LostFileError
from observability.profiling.analysis import analyse, run_figures
from observability.profiling.text import describe
from observability.profiling.window import ProfileFolder
from observability.progress import ProgressView
from training import preflight, unwritable
from training.checkpoint.remote.driving import check_bucket, leased
from training.checkpoint.store import committed_steps
from training.code import kept
from training.code.kept import RunCode
from training.config.schema import TrainingSettings
from training.errors import ExitStatus, Interrupted, PreflightError, SettingsError, TrainingFailedError
from training.rundir import RunDirectory
from training.summary import summary
from training.supervisor import Supervisor
from training.tracking.process import DeliveryReport

if TYPE_CHECKING:
    from training.code.archive import CodeArchive

_TRACKING_SECONDS = 120.0
"""Seconds the driver waits for the upload to MLflow; a first run also creates the database."""


def drive(settings: TrainingSettings, code: CodeArchive | None = None) -> ExitStatus:
    """Check, train, report. Names in the settings have been validated. A run continues without a reader of its output.

    Args:
        settings: of the run.
        code: code of the user's own, which the run keeps; None uses what the run has kept already, if anything.

    Raises:
        PlatformError: the run was refused or failed.
    """
    with outliving_the_reader():
        return _drive(settings, code)


def _drive(settings: TrainingSettings, code: CodeArchive | None) -> ExitStatus:
    _refuse_unnamed(settings)
    machine = preflight.this_machine()
    settings, notice = preflight.fit_workers(settings, machine)
    preflight.check(settings, machine)
    is_first_node = settings.scale.node_rank == 0
    is_in_bucket = is_first_node and check_bucket(settings)
    view = ProgressView(stream=sys.stdout, is_terminal=sys.stdout.isatty())
    run = RunDirectory.create(settings, now=datetime.now().astimezone())
    settings = settings.model_copy(update={"run": settings.run.model_copy(update={"name": run.name})})
    with ExitStack() as stack:
        if is_first_node:
            stack.enter_context(run.driving())
            _refuse_to_repeat(settings, run)
            if not is_in_bucket:
                run.refuse_lost_checkpoints()
            stack.enter_context(leased(settings, run, say=view.say))
        if notice:
            view.say(notice)
        own = _kept(run, code, view)
        supervisor = Supervisor(settings, run, code=own, view=view)
        has_time = is_first_node
        try:
            outcome = supervisor.run()
        except Interrupted:
            has_time = False  # after a second Ctrl-C: no report, and the follower delivers to MLflow by itself
            raise
        except OSError as error:
            _explain_unwritable(error, run)
            raise
        finally:
            view.close()
            if has_time:
                _write_report(run, view)
                delivery = _finish_tracking(supervisor, view)
    if not is_first_node:
        return ExitStatus.DONE
    if not run.events.exists():
        raise _lost_folder(run)
    print("\n".join(summary(outcome, run, code=own, delivery=delivery)))
    return ExitStatus.DONE if outcome.status == "done" else ExitStatus.INTERRUPTED


def _kept(run: RunDirectory, code: CodeArchive | None, view: ProgressView) -> RunCode | None:
    """The code that the ranks import, kept in the run's folder; a run that had other code says so, and later its log does."""
    earlier = kept.current_identity(run.path)
    if code is None:
        code = kept.current(run.path)
    if code is None:
        return None
    if earlier is not None and earlier.sha256 != code.identity.sha256:
        view.say(f"the run's code changes from {earlier.describe()} to {code.identity.describe()}")
    try:
        return kept.keep(run.path, code)
    except OSError as error:
        raise PreflightError(
            f"{error.filename or run.path}: {error.strerror}: the code cannot be kept in the run's folder",
            remedy=unwritable.REMEDIES.get(error.errno or 0, "check the folder"),
        ) from error


def _refuse_unnamed(settings: TrainingSettings) -> None:
    """Refuse a multi-node run without a name: each node would name the folder by its own clock."""
    if settings.scale.nodes > 1 and settings.run.name is None:
        raise SettingsError(
            f"scale.nodes={settings.scale.nodes} needs run.name: the nodes share the run's folder",
            remedy="give the same --name on every node",
        )


def _refuse_to_repeat(settings: TrainingSettings, run: RunDirectory) -> None:
    """Under `checkpoint.resume: never`, refuse a run that has a checkpoint."""
    steps = committed_steps(run.checkpoints)
    if settings.checkpoint.resume == "never" and steps:
        raise PreflightError(
            f"checkpoint.resume=never, but run {run.name} has a checkpoint of step {steps[-1]}",
            remedy="choose another --name, or set checkpoint.resume=auto to resume from it",
        )


def _explain_unwritable(error: OSError, run: RunDirectory) -> None:
    """Raise an error with a remedy if the run's folder cannot be written; other errors pass."""
    if isinstance(error, LostFileError):
        raise _lost_folder(run) from error
    then = f"{run.command('resume')} resumes from the newest checkpoint, which is intact"
    if explained := unwritable.explain(error, run.events, owner="run", then=then):
        raise explained from error


def _lost_folder(run: RunDirectory) -> TrainingFailedError:
    return TrainingFailedError(
        f"{run.path}: the run's folder was deleted, moved or replaced while the run was going",
        remedy=f"move it back and resume it: {run.command('resume')}; if it is gone, so are its checkpoints. To end a running "
        f"run, use {run.command('stop')}",
    )


def _write_report(run: RunDirectory, view: ProgressView) -> None:
    """Show the goodput and the cost, and write the report of a run that has trained; an error in the report does not fail the run."""
    goodput = GoodputLedger.of_run(run.path)
    if not goodput.has_trained:
        return
    view.say(f"goodput {goodput.describe()}")
    if goodput.cost is not None:
        view.say(f"cost {goodput.cost.describe()}")
    _judge_profiles(run, view)
    try:
        from observability.report import write_report  # noqa: PLC0415 - brings matplotlib

        write_report(run.path)
    except Exception as error:  # noqa: BLE001 - the weights are saved
        view.say(f"the report could not be written: {type(error).__name__}: {error}")


def _judge_profiles(run: RunDirectory, view: ProgressView) -> None:
    """Show what the new profiles say; an error in one does not fail the run."""
    for profile in ProfileFolder.all_of(run.path):
        if profile.analysis.exists():
            continue
        try:
            view.say(describe(analyse(profile, run_figures(run.path)), run=str(run.path)))
        except Exception as error:  # noqa: BLE001 - the weights are saved
            view.say(f"the profile could not be analysed: {type(error).__name__}: {error}")


def _finish_tracking(supervisor: Supervisor, view: ProgressView) -> DeliveryReport | None:
    if supervisor.follower is None:
        return None
    view.say("sending the run to MLflow …")
    return supervisor.follower.finish(timeout=_TRACKING_SECONDS)
