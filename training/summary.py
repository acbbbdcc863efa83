"""What a run's driver prints at its end: where everything is, and how to go on."""

from __future__ import annotations

from training.checkpoint.store import folder_name
from training.code import kept
from training.code.kept import RunCode
from training.environment import run_arguments
from training.launch.task import Outcome
from training.rundir import RunDirectory
from training.tracking.process import DeliveryReport


def summary(outcome: Outcome, run: RunDirectory, *, code: RunCode | None, delivery: DeliveryReport | None) -> list[str]:
    """The lines. In a job they name no command that needs the run's folder: it is not on the machine of the job's user.

    Args:
        outcome: of the run.
        run: its folder.
        code: its user's own code, if it has any.
        delivery: to MLflow; None if the run is not tracked.
    """
    is_in_job = run_arguments() is not None
    parts = (
        [] if code is None else [("code", f"{run.path / kept.archive_name(code.identity)}  {code.identity.describe()}")]
    )
    if outcome.step:  # a run that was stopped while it waited for a restart may have none
        parts.append(("checkpoint", f"{run.checkpoints}/{folder_name(outcome.step)}"))
    if outcome.weights_sha256:  # of the tensors; the file's own differs
        parts.append(("weights", f"{run.model / 'model.safetensors'}  (weights hash {outcome.weights_sha256[:16]})"))
    parts.append(("report", str(run.report)))
    parts.append(("events", str(run.events) if is_in_job else f"{run.events}  ({run.command('monitor')})"))
    if delivery is not None and delivery.is_complete:
        parts.append(("MLflow", delivered_text(delivery)))
    elif delivery is not None:
        sends = run.command("resume" if is_in_job else "sync")
        parts.append(("MLflow", f"incomplete: {delivery.problem}; {sends} sends the rest"))
    if outcome.status == "stopped":
        parts.append(("resume", run.command("resume")))
    return [f"  {name:<11}{text}" for name, text in parts]


def delivered_text(delivery: DeliveryReport) -> str:
    """Where a complete delivery of a run or a search is; outside of a job also the command that opens this machine's MLflow."""
    model = f", model {delivery.model}" if delivery.model else ""
    opens = "  (make ui)" if run_arguments() is None else ""
    lacks = f"; {delivery.lacks}" if delivery.lacks else ""
    return f"run {delivery.run_id}{model} in {delivery.uri}{opens}{lacks}"
