"""What a run reports of its devices: the FLOPs of a sample, and what each rank measured, without a change of the weights."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.utils import flop_counter

from observability.runlog import FlopsCounted, Notice, RanksMeasured, read_all, select
from tests.training.launch.ranks import run_world
from tests.training.runs import run_alone, small_settings, steps_of
from training.config.schema import TrainingSettings

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
