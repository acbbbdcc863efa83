"""Judges the run in which a rank was killed, and where it can be seen."""

from __future__ import annotations

from training.cluster.conformance.check import Finding, judged
from training.cluster.conformance.judges.shape import JobShape
from training.conformance.facts import TrackingFacts, TrainingFacts

_FALL = 0.5
"""The loss of the digits falls to a tenth within the run; half of it is beyond what batches vary by."""


def loss(facts: TrainingFacts, shape: JobShape) -> Finding:
    """The run has ended by itself, with all ranks and all steps, and its loss is less than half of the first."""
    fell = facts.last_loss <= _FALL * facts.first_loss
    is_done = facts.status == "done" and facts.ranks == shape.ranks and facts.steps == facts.total_steps
    accuracy = "" if facts.test_accuracy is None else f", test accuracy {facts.test_accuracy:.1%}"
    return judged(
        holds=fell and is_done,
        expected=f"done, {shape.ranks} ranks, {facts.total_steps} steps, a last loss of at most half the first",
        found=f"{facts.status or 'not ended'}, {facts.ranks} ranks, {facts.steps} steps, "
        f"loss {facts.first_loss:.3f} -> {facts.last_loss:.3f}{accuracy}{_why(facts.message)}",
    )


def resume(facts: TrainingFacts) -> Finding:
    """After a rank was killed, the ranks started once more from a later step, with weights that had learnt."""
    expected = "after the kill, a start from a step above 0 with a loss below the first"
    starts = ", ".join(map(str, facts.starts))
    if facts.killed_rank is None:
        return judged(holds=False, expected=expected, found=f"no rank was killed{_why(facts.message)}")
    if len(facts.starts) < 2 or facts.resumed_loss is None:
        found = f"rank {facts.killed_rank} was killed, and the ranks did not train again{_why(facts.message)}"
        return judged(holds=False, expected=expected, found=found)
    return judged(
        holds=facts.starts[0] == 0 and facts.starts[-1] > 0 and facts.resumed_loss < facts.first_loss,
        expected=expected,
        found=f"rank {facts.killed_rank} was killed; starts from steps {starts}; "
        f"loss {facts.first_loss:.3f} at first, {facts.resumed_loss:.3f} after the restart",
    )


def tracking(facts: TrackingFacts, run: TrainingFacts) -> Finding:
    """MLflow has the run as finished, with a loss at the run's last step."""
    expected = f"a finished run with step {run.steps}"
    if not facts.run_id:
        return judged(holds=False, expected=expected, found=f"no run in {facts.uri}{_why(facts.message)}")
    return judged(
        holds=facts.status == "FINISHED" and facts.last_step == run.steps,
        expected=expected,
        found=f"run {facts.run_id} is {facts.status}, with step {facts.last_step}, in {facts.uri}",
    )


def _why(message: str) -> str:
    return f": {' '.join(message.split())[:200]}" if message else ""
