"""Callbacks in a run: called at the documented hooks, in order, with their state saved and restored; and what they report."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.utils import flop_counter

from observability.runlog import CheckpointCommitted, FlopsCounted, Notice, RanksMeasured, Step, read_all, select
from tests.training.launch.ranks import on_ranks, run_world
from tests.training.runs import ALONE, run_alone, small_settings, steps_of
from training.callbacks import checkpointing
from training.callbacks.callback import Callback
from training.checkpoint.writer import AsyncCheckpointer
from training.config.schema import TrainingSettings
from training.data.types import Batch
from training.errors import NonFiniteLossError
from training.launch.task import Outcome, RankPlace, RankTask
from training.loop import Loop
from training.reporting import reporting
from training.session import Session
from training.step import StepResult


class WeightAverage(Callback):
    """A user's callback with state: an average of the weights, and the losses."""

    name: ClassVar[str] = "weight_average"

    def __init__(self) -> None:
        self.steps = 0
        self.average: Tensor | None = None

    def state_dict(self) -> dict[str, Any]:
        """A number and a tensor."""
        return {"steps": self.steps, "average": self.average} if self.average is not None else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore both."""
        self.steps, self.average = state_dict["steps"], state_dict["average"]

    def on_step_end(self, loop: Loop, micro_batches: list[Batch], result: StepResult) -> None:
        """Average the weights."""
        del micro_batches, result
        weights = torch.cat([p.detach().reshape(-1) for p in loop.module.parameters()])
        self.average = weights if self.average is None else self.average.lerp(weights, 0.1)
        self.steps += 1


def _noted(point: str) -> Callable[..., None]:
    def note(trace: Trace, loop: Loop, *_: object) -> None:
        trace.points.append((point, loop.progress.step))

    return note


class Trace(Callback):
    """Records the hooks that are called, with the number of steps done."""

    def __init__(self) -> None:
        self.points: list[tuple[str, int]] = []

    on_run_start = _noted("run_start")
    on_step_start = _noted("step_start")
    on_step_end = _noted("step_end")
    on_bad_step = _noted("bad_step")
    on_due = _noted("due")
    on_epoch_end = _noted("epoch_end")
    on_evaluation = _noted("evaluation")
    on_train_end = _noted("train_end")
    on_run_end = _noted("run_end")
    on_close = _noted("close")

    def is_due(self, loop: Loop) -> bool:
        """Due at every third step."""
        return loop.progress.step % 3 == 0


def run(settings: TrainingSettings, folder: Path, *callbacks: Callback, place: RankPlace = ALONE) -> Outcome:
    folder.mkdir(parents=True, exist_ok=True)
    task = RankTask(settings=settings, run_directory=folder, attempt=0)
    with reporting(folder, settings.metrics) as reporter:
        emit = reporter.emit if place.rank == 0 else lambda *_: None
        return Session(task, place, emit=emit, wants_stop=lambda: False, callbacks=callbacks).run()


def until(steps: int) -> TrainingSettings:
    return small_settings(loop={"max_steps": steps}, schedule={"name": "constant"})


def test_a_user_s_callback_is_restored_bit_for_bit_and_does_not_change_the_weights_of_a_run(tmp_path: Path) -> None:
    whole, first, second = WeightAverage(), WeightAverage(), WeightAverage()
    assert run(until(30), tmp_path / "whole", whole, Trace()) == run(until(30), tmp_path / "without")
    run(until(13), tmp_path / "parted", first)
    run(until(30), tmp_path / "parted", second)
    assert (first.steps, second.steps) == (13, 30)
    assert whole.average is not None
    assert second.average is not None
    assert torch.equal(second.average, whole.average)
    files = {path.name for path in (tmp_path / "parted" / "checkpoints" / "step-00000030").iterdir()}
    assert "weight_average.safetensors" in files


def test_a_callback_added_later_keeps_its_initial_state_with_a_warning(tmp_path: Path) -> None:
    class Counting(WeightAverage):
        def state_dict(self) -> dict[str, Any]:
            return {"steps": self.steps}

    run(until(5), tmp_path)
    added = Counting()
    run(until(10), tmp_path, added)
    assert added.steps == 5
    assert any("no state weight_average" in notice.message for notice in select(read_all(tmp_path), Notice))


def test_the_hooks_are_called_in_the_documented_order_and_the_log_has_all_steps_when_one_is_due(tmp_path: Path) -> None:
    class Reader(Trace):
        def on_due(self, loop: Loop) -> None:
            logged = [step.step for step in select(read_all(tmp_path), Step)]
            assert logged == list(range(1, loop.progress.step + 1))
            self.points.append(("due", loop.progress.step))

    trace = Reader()
    run(until(23), tmp_path, trace)
    points = [point for point in trace.points if not point[0].startswith("step_")]
    due = [("due", step) for step in (3, 6, 9, 12, 15, 18)]
    assert points == [
        ("run_start", 0),
        *due,
        *((hook, 21) for hook in ("epoch_end", "evaluation")),
        *((hook, 23) for hook in ("epoch_end", "evaluation", "train_end", "run_end", "evaluation", "close")),
    ]
    steps = [point for point in trace.points if point[0].startswith("step_")]
    assert steps == [pair for step in range(23) for pair in (("step_start", step), ("step_end", step + 1))]


def test_close_is_called_after_an_error_too(tmp_path: Path) -> None:
    class Failing(Trace):
        def on_step_start(self, loop: Loop, micro_batches: list[Batch]) -> None:
            del loop, micro_batches
            raise RuntimeError("an error in the callback")

    failing = Failing()
    with pytest.raises(RuntimeError, match="an error in the callback"):
        run(until(5), tmp_path, failing)
    assert failing.points[-1][0] == "close"


def test_on_bad_step_is_called_before_on_step_end(tmp_path: Path) -> None:
    trace = Trace()
    settings = small_settings(
        optimizer={"name": "sgd", "learning_rate": 1e30}, loop={"clip_norm": None, "nonfinite": "skip", "max_steps": 4}
    )
    with pytest.raises(NonFiniteLossError, match="3 of 4 steps were skipped"):
        run(settings, tmp_path, trace)
    assert not (tmp_path / "model").exists()
    bad = [index for index, point in enumerate(trace.points) if point[0] == "bad_step"]
    assert bad
    assert all(trace.points[index + 1][0] == "step_end" for index in bad)
    assert trace.points[-1] == ("close", 4), "bad steps count"
    assert any("step skipped" in notice.message for notice in select(read_all(tmp_path), Notice))


def _run_rank(place: RankPlace, folder: Path, steps: int) -> float:
    average = WeightAverage()
    settings = small_settings(
        loop={"max_steps": steps}, schedule={"name": "constant"}, scale={"launcher": "torchrun", "workers": 2}
    )
    run(settings, folder, average, place=place)
    assert average.average is not None
    return float(average.average.double().sum())


@pytest.mark.extended
def test_every_rank_restores_the_state_that_rank_0_saved(tmp_path: Path) -> None:
    whole = on_ranks(2, _run_rank, tmp_path / "whole", 12)
    on_ranks(2, _run_rank, tmp_path / "parted", 7)
    assert on_ranks(2, _run_rank, tmp_path / "parted", 12) == whole
    assert whole[0] == whole[1]


def test_a_checkpoint_is_logged_once_it_is_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that hangs before its next checkpoint then has the last one in its log."""
    writers, logged = list[AsyncCheckpointer](), list[int]()

    class Captured(AsyncCheckpointer):
        def __init__(self, *arguments: Any, **keywords: Any) -> None:  # noqa: ANN401  # passed on
            super().__init__(*arguments, **keywords)
            writers.append(self)

    class Reader(Callback):
        def is_due(self, loop: Loop) -> bool:
            return loop.progress.step == 6

        def on_step_start(self, loop: Loop, micro_batches: list[Batch]) -> None:
            del micro_batches
            if loop.progress.step == 3:
                wait(writers[0]._futures)

        def on_due(self, loop: Loop) -> None:
            if loop.progress.step == 6:
                logged.extend(event.step for event in select(read_all(tmp_path), CheckpointCommitted))

    monkeypatch.setattr(checkpointing, "AsyncCheckpointer", Captured)
    settings = small_settings(
        loop={"max_steps": 8}, schedule={"name": "constant"}, checkpoint={"every_steps": 3, "keep_last": 2}
    )
    run(settings, tmp_path, Reader())
    assert logged == [3]


MLP = {"name": "mlp", "options": {"hidden": [32], "dropout": 0.2}}
PEAK = 1e12


def settings(*, workers: int, **metrics: bool | float) -> TrainingSettings:
    """A few steps of a network whose FLOPs are known, with dropout."""
    return small_settings(
        model=MLP,
        loop={"max_steps": 6, "accumulation": 2},
        scale={"launcher": "torchrun" if workers > 1 else "plain", "workers": workers},
        metrics=metrics,
    )


def test_two_ranks_report_their_flops_and_waits_and_train_the_same_weights_as_without(tmp_path: Path) -> None:
    run, plain = settings(workers=2, peak_flops=PEAK), settings(workers=2, flops=False)
    assert run_world(run, tmp_path / "run") == run_world(plain, tmp_path / "plain")
    events, steps = read_all(tmp_path / "run"), steps_of(tmp_path / "run")
    # 64 pixels, 32 hidden units, 10 classes; nothing needs the gradient of the pixels.
    (counted,) = select(events, FlopsCounted)
    assert (counted.per_sample, counted.device, counted.peak) == (4 * 64 * 32 + 6 * 32 * 10, "CPU", 2 * PEAK)
    assert select(read_all(tmp_path / "plain"), FlopsCounted) == []
    ranks = select(events, RanksMeasured)
    assert ranks[-1].step == 6
    assert all(len(event.communication_seconds) == 2 for event in ranks)
    waited = sum(event.communication_seconds[0] for event in ranks)
    assert waited == pytest.approx(sum(step.communication_seconds or 0.0 for step in steps))
    assert waited > 0


def test_flops_that_cannot_be_counted_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> int:
        raise AssertionError("shapes are incompatible")

    monkeypatch.setattr(flop_counter, "flop_registry", dict.fromkeys(flop_counter.flop_registry, failing))
    run_alone(settings(workers=1), tmp_path)
    events = read_all(tmp_path)
    assert {tuple(event.communication_seconds) for event in select(events, RanksMeasured)} == {(0.0,)}
    assert {step.communication_seconds for step in steps_of(tmp_path)} == {0.0}
    assert select(events, FlopsCounted) == []
    (warning,) = [notice for notice in select(events, Notice) if "FLOPs" in notice.message]
    assert warning.level == "warning"
    assert warning.message == "the FLOPs of a step are not known, nor is MFU: failing: shapes are incompatible"
