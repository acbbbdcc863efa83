"""The evidence of a step that fails again and again."""

from __future__ import annotations

from pathlib import Path

from observability.runlog import RunLogWriter, TrainingStarted
from tests.training.runs import small_settings
from training.data.order import BatchPlan
from training.evidence import Evidence
from training.failures import Failure
from training.recovery.poison import describe_poison
from training.recovery.policy import Incident

SAMPLES, BATCH = 1000, 64
PLAN = BatchPlan(size=SAMPLES, global_batch=BATCH, world=1)


def started() -> TrainingStarted:
    return TrainingStarted(
        world=1,
        start_step=0,
        total_steps=99,
        steps_per_epoch=PLAN.steps_per_epoch,
        parameters=1,
        train_samples=SAMPLES,
        dataset_fingerprint="",
    )


def failures_in(step: int | None) -> list[Incident]:
    failure = Failure.sudden("rank 1 was killed", kind="SIGKILL", found=Evidence(step=step))
    return [Incident(attempt=number, began=0, ended=1, failure=failure, committed=0) for number in range(3)]


def test_the_samples_of_the_step_are_named_by_their_positions(tmp_path: Path) -> None:
    with RunLogWriter(tmp_path) as log:
        log.write(started())
    settings = small_settings(loop={"global_batch": BATCH}, run={"seed": 7})
    for step in (1, 16, 17, 35):
        *attempts, samples = describe_poison(failures_in(step), settings, tmp_path).split("\n")
        assert attempts == [
            f"  attempt {number}, lost process: rank 1 was killed, in step {step}" for number in range(3)
        ]
        epoch, in_epoch = divmod(step - 1, PLAN.steps_per_epoch)
        positions = PLAN.positions(in_epoch, rank=0, micro=0)
        assert f"positions {positions[0]} to {positions[-1]} of epoch {epoch + 1};" in samples
        assert f"sample_order(train, seed=7, epoch={epoch})[{positions.start}:{positions.stop}]" in samples


def test_without_a_step_there_are_the_attempts_alone(tmp_path: Path) -> None:
    assert len(describe_poison(failures_in(None), small_settings(), tmp_path).split("\n")) == 3
    assert describe_poison([], small_settings(), tmp_path) == ""
