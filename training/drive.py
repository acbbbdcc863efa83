"""From settings to a finished run: the steps of `train` and `resume`, in order.

What can be refused is refused before a folder is made or a process started.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from datetime import datetime

from observability.progress import ProgressView
from training import preflight
from training.checkpoint.store import committed_steps
from training.config.schema import TrainingSettings
from training.errors import ExitStatus, PreflightError
from training.launch.task import Outcome
from training.rundir import RunDirectory
from training.supervisor import Supervisor


def drive(settings: TrainingSettings) -> ExitStatus:
    """Check, train, report. The settings' names are valid already.

    Raises:
        PlatformError: refused, or failed.
    """
    machine = preflight.this_machine()
    settings, notice = preflight.fit_workers(settings, machine)
    preflight.check(settings, machine)
    view = ProgressView(stream=sys.stdout, is_terminal=sys.stdout.isatty())
    run = RunDirectory.create(settings, now=datetime.now().astimezone())
    settings = settings.model_copy(update={"run": settings.run.model_copy(update={"name": run.name})})
    is_first_node = settings.scale.node_rank == 0
    with run.driving() if is_first_node else nullcontext():
        if is_first_node:
            _refuse_to_repeat(settings, run)
            run.write_settings(settings)
        if notice:
            view.say(notice)
        outcome = Supervisor(settings, run, view=view).run()
    return _conclude(outcome, run, view)


def _refuse_to_repeat(settings: TrainingSettings, run: RunDirectory) -> None:
    """Under `checkpoint.resume: never`, refuse a run that has been trained before."""
    steps = committed_steps(run.checkpoints)
    if settings.checkpoint.resume == "never" and steps:
        raise PreflightError(
            f"checkpoint.resume=never, but run {run.name} has a checkpoint of step {steps[-1]}",
            remedy="choose another --name, or set checkpoint.resume=auto to go on from it",
        )


def _conclude(outcome: Outcome, run: RunDirectory, view: ProgressView) -> ExitStatus:
    view.close()
    if outcome.status == "stopped":
        print(f"stopped at step {outcome.step}, committed. Go on: make resume NAME={run.name}")
        return ExitStatus.INTERRUPTED
    return ExitStatus.DONE
