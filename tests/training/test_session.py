"""A whole rank in this process: it learns, resumes bit for bit, sees each sample once, and handles failures."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from observability.history import RunHistory, part_seconds
from observability.runlog import (
    CheckpointCommitted,
    Evaluated,
    Notice,
    Restored,
    Step,
    TrainingStarted,
    read_all,
    select,
)
from tests.training.launch.ranks import run_world
from tests.training.runs import run_alone, small_settings, steps_of
from training import failures
from training.callbacks import sample_ledger as ledger
from training.checkpoint.store import committed_steps, local_store
from training.data.order import BatchPlan
from training.device import FAKE_GPUS
from training.errors import NonFiniteLossError, PreflightError
from training.launch.task import WorkersFailedError
from training.loop import planned_steps

STEPS_PER_EPOCH = 21  # 1293 training digits in batches of 64


def test_the_shipped_job_reaches_97_percent_on_held_out_digits(tmp_path: Path) -> None:
    outcome = run_alone(small_settings(loop={"epochs": 10}), tmp_path / "run")
    test = [event for event in select(read_all(tmp_path / "run"), Evaluated) if event.split == "test"]
    assert outcome.status == "done"
    assert outcome.step == 10 * STEPS_PER_EPOCH
    assert test[-1].metrics["accuracy"] >= 0.97
    assert test[-1].samples == 359


def test_equal_seeds_give_equal_weights_and_different_seeds_different_ones(tmp_path: Path) -> None:
    first = run_alone(small_settings(loop={"max_steps": 5}), tmp_path / "a")
    again = run_alone(small_settings(loop={"max_steps": 5}), tmp_path / "b")
    other = run_alone(small_settings(loop={"max_steps": 5}, run={"seed": 1}), tmp_path / "c")
    assert first.weights_sha256 == again.weights_sha256
    assert first.weights_sha256 != other.weights_sha256


def test_gpus_that_do_not_exist_are_replaced_by_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_cpu = run_alone(small_settings(loop={"max_steps": 5}), tmp_path / "cpu")
    monkeypatch.setenv(FAKE_GPUS, "fake-0")
    outcome = run_alone(small_settings(loop={"max_steps": 5}, scale={"gpu": True}), tmp_path / "fake")
    assert outcome.weights_sha256 == on_cpu.weights_sha256
    assert "training on the CPU" in select(read_all(tmp_path / "fake"), Notice)[0].message


def test_a_run_stopped_anywhere_and_resumed_ends_in_the_same_weights(tmp_path: Path) -> None:
    """Dropout and augmentation are on; step 21 is the last of its epoch."""
    whole = small_settings(schedule={"name": "constant"})
    reference = run_alone(whole, tmp_path / "reference")
    assert reference.step == 2 * STEPS_PER_EPOCH
    for stop_after in (1, 5, 20, 21, 22, 33):
        folder = tmp_path / f"parted after {stop_after}"
        part = small_settings(loop={"max_steps": stop_after}, schedule={"name": "constant"})
        assert run_alone(part, folder).step == stop_after
        assert run_alone(whole, folder) == reference, folder.name
        assert select(read_all(folder), Restored)[0].step == stop_after


def test_a_stop_request_ends_the_run_at_a_committed_step(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "stop").touch()
    stopped = run_alone(small_settings(), run)
    assert stopped.status == "stopped"
    assert 0 < stopped.step < 2 * STEPS_PER_EPOCH
    assert select(read_all(run), CheckpointCommitted)[-1].step == stopped.step
    (run / "stop").unlink()
    assert run_alone(small_settings(), run).weights_sha256 == run_alone(small_settings(), tmp_path / "b").weights_sha256


def test_each_sample_is_consumed_once_per_epoch_even_if_the_batch_does_not_divide_them(tmp_path: Path) -> None:
    run_alone(small_settings(loop={"log_sample_ids": True, "accumulation": 2, "global_batch": 50}), tmp_path)
    assert ledger.consumed_ids(tmp_path) == {epoch: list(range(1293)) for epoch in (1, 2)}


def test_the_log_has_every_step_with_its_phases_and_a_checkpoint_s_steps_before_it(tmp_path: Path) -> None:
    run_alone(small_settings(), tmp_path)
    events = read_all(tmp_path)
    (started,) = select(events, TrainingStarted)
    assert (started.world, started.start_step, started.train_samples) == (1, 0, 1293)
    assert len(started.dataset_fingerprint) == 64
    assert [step.step for step in steps_of(tmp_path)] == list(range(1, 2 * STEPS_PER_EPOCH + 1))
    newest = 0
    for event in events:
        if isinstance(event, Step):
            newest = event.step
            parts = event.data_seconds + event.forward_seconds + event.backward_seconds + event.optimizer_seconds
            assert 0 < parts <= event.seconds * 1.001
        elif isinstance(event, CheckpointCommitted):
            assert event.step <= newest


def test_a_diverging_run_stops_and_names_the_step_and_its_log_has_every_step_before_it(tmp_path: Path) -> None:
    settings = small_settings(
        optimizer={"name": "sgd", "learning_rate": 1e5}, loop={"clip_norm": None}, checkpoint={"every_steps": 1000}
    )
    with pytest.raises(NonFiniteLossError, match=r"step \d+: the gradient is not finite") as caught:
        run_alone(settings, tmp_path / "run")
    assert "optimizer.learning_rate" in caught.value.remedy
    ended = WorkersFailedError("status 1")
    assert failures.cause(tmp_path / "run", attempt=0, ended=ended, scale=settings.scale).kind == "NonFiniteLossError"
    bad = int(str(caught.value).removeprefix("step ").partition(":")[0])
    assert bad > 2  # in a window of several steps
    assert [step.step for step in steps_of(tmp_path / "run")] == list(range(1, bad))


def test_a_resumed_run_names_the_changed_settings_with_both_values(tmp_path: Path) -> None:
    for _ in range(2):
        run_alone(small_settings(loop={"max_steps": 5}, tracking={"experiment": "before"}), tmp_path / "run")
    assert select(read_all(tmp_path / "run"), Notice) == []
    changed = small_settings(
        run={"name": "moved", "directory": tmp_path},
        model={"options": {"dropout": 0.3}},
        data={"augment": False},
        optimizer={"learning_rate": 0.001},
        precision={"mode": "bf16"},
        loop={"max_steps": 6},
    )
    run_alone(changed, tmp_path / "run")
    assert [event.message for event in select(read_all(tmp_path / "run"), Notice)] == [
        "resumed with a change: data.augment: saved true, wanted false",
        "resumed with a change: loop.max_steps: saved 5, wanted 6",
        "resumed with a change: model.options.dropout: saved (unset), wanted 0.3",
        "resumed with a change: optimizer.learning_rate: saved 0.003, wanted 0.001",
        "resumed with a change: precision.mode: saved fp32, wanted bf16",
    ]


def test_a_rank_does_not_start_anew_where_the_log_has_a_checkpoint(tmp_path: Path) -> None:
    """The manifests may get lost while the run trains; then the driver restarts the ranks."""
    run_alone(small_settings(loop={"max_steps": 5}), tmp_path / "run")
    tensors = tmp_path / "run" / "checkpoints" / "step-00000005" / "model.safetensors"
    tensors.with_name("manifest.json").unlink()
    with pytest.raises(PreflightError, match="the run has committed step 5"):
        run_alone(small_settings(loop={"max_steps": 5}), tmp_path / "run", attempt=1)
    assert tensors.exists()


def test_a_run_has_all_steps_of_its_epochs_up_to_max_steps() -> None:
    plan = BatchPlan(size=1293, global_batch=64, world=1, accumulation=1)
    for epochs, max_steps, expected in ((3, None, 63), (3, 50, 50), (1, 1000, STEPS_PER_EPOCH)):
        settings = small_settings(loop={"epochs": epochs, "max_steps": max_steps})
        assert planned_steps(settings.loop, plan) == expected


def test_the_model_is_evaluated_every_evaluate_every_epochs_and_at_the_end(tmp_path: Path) -> None:
    run_alone(small_settings(loop={"epochs": 5, "evaluate_every": 2}), tmp_path)
    evaluated = [(event.split, event.epoch) for event in select(read_all(tmp_path), Evaluated)]
    assert evaluated == [("validation", 2), ("validation", 4), ("validation", 5), ("test", 5)]


def test_final_weights_are_evaluated_once_where_one_split_serves_twice(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"a": [0.0, 1.0] * 20, "label": [0, 1] * 20}), tmp_path / "data" / "0.parquet")
    options = {"inputs": ["a"], "target": "label"}
    data = {"dataset": "parquet", "path": str(tmp_path / "data"), "options": options, "augment": False}
    run_alone(small_settings(data=data, model={"name": "mlp"}, loop={"epochs": 2}), tmp_path / "run")
    first, last, test = select(read_all(tmp_path / "run"), Evaluated)
    assert [first.split, last.split, test.split] == ["validation", "validation", "test"]
    assert (test.seconds, test.metrics, test.step) == (last.seconds, last.metrics, last.step)


@pytest.mark.parametrize("objective", ["classification", "tests.training.objectives.own:SureAccuracy"])
def test_the_best_checkpoint_is_kept_as_well_as_the_newest(tmp_path: Path, objective: str) -> None:
    """Also after an evaluation that was no number, as of a ratio without cases."""
    settings = small_settings(
        loop={"epochs": 6},
        checkpoint={"every_steps": 1000, "keep_last": 1, "keep_best": 1},
        objective={"name": objective},
        optimizer={"learning_rate": 0.02},
    )
    run_alone(settings, tmp_path)
    evaluations = [event for event in select(read_all(tmp_path), Evaluated) if event.split == "validation"]
    assert math.isnan(evaluations[0].metrics["accuracy"]) == (objective != "classification")
    best = max(evaluations, key=lambda event: (not math.isnan(value := event.metrics["accuracy"]), value))
    assert RunHistory.from_events(read_all(tmp_path)).best_validation() == best
    assert committed_steps(tmp_path / "checkpoints") == sorted({best.step, 6 * STEPS_PER_EPOCH})
    metrics = {manifest.step: manifest.metric for manifest in local_store(tmp_path / "checkpoints").manifests()}
    assert metrics[best.step] == best.metrics["accuracy"]
    warned = [one for one in select(read_all(tmp_path), Notice) if one.level == "warning" and "is NaN" in one.message]
    assert len(warned) == (objective != "classification"), "once, not at each evaluation"


def test_a_finished_cosine_that_gets_more_steps_says_how_far_its_rate_goes_up(tmp_path: Path) -> None:
    for steps in (10, 20):
        run_alone(small_settings(loop={"max_steps": steps}, schedule={"name": "cosine"}), tmp_path)
    rates = {step.step: step.learning_rate for step in steps_of(tmp_path)}
    [said] = [one.message for one in select(read_all(tmp_path), Notice) if "learning rate" in one.message]
    assert f"from {rates[10]:.3g} to {rates[11]:.3g} at step 11" in said
    assert f"optimizer.learning_rate={rates[10]:.3g}" in said


def test_the_first_step_of_an_epoch_has_the_delay_of_the_checkpoint_before_it(tmp_path: Path) -> None:
    run_alone(small_settings(loop={"epochs": 3}, checkpoint={"every_steps": STEPS_PER_EPOCH}), tmp_path)
    delayed = [step for step in steps_of(tmp_path) if step.checkpoint_seconds]
    assert [step.step for step in delayed] == [1 + STEPS_PER_EPOCH, 1 + 2 * STEPS_PER_EPOCH]
    assert all(sum(part_seconds(step)) == pytest.approx(step.seconds) for step in delayed)


def test_ranks_that_are_asked_to_stop_agree_on_the_step_and_log_their_own_times(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    outcome = run_world(small_settings(scale={"launcher": "torchrun", "workers": 2}), tmp_path)
    steps = steps_of(tmp_path)
    assert outcome.status == "stopped"
    assert outcome.step == steps[-1].step == committed_steps(tmp_path / "checkpoints")[-1]
    for step in steps:
        assert len(step.rank_seconds) == 2
        assert min(step.rank_seconds) > 0
        assert step.rank_seconds[0] <= step.seconds
