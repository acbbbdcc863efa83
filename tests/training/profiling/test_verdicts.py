"""Real runs with a planted bottleneck get the verdict that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from observability.profiling.analysis import Analysis, analyse, run_figures
from observability.profiling.window import ProfileFolder
from tests.training.launch.ranks import run_world
from tests.training.runs import run_alone, small_settings

BOTTLENECKS = "tests.training.profiling.bottlenecks:"
FIRST, STEPS = 4, 8


def profiled(folder: Path, *, workers: int = 1, **sections: dict[str, Any]) -> Analysis:
    """The analysis of a real run with these settings, which is profiled from its fourth step on."""
    sections["loop"] = {"max_steps": FIRST + STEPS, **sections.get("loop", {})}
    sections["scale"] = {"launcher": "torchrun" if workers > 1 else "plain", "workers": workers}
    settings = small_settings(profile={"start_step": FIRST, "steps": STEPS}, **sections)
    (run_world if workers > 1 else run_alone)(settings, folder)
    (profile,) = ProfileFolder.all_of(folder)
    return analyse(profile, run_figures(folder))


def test_a_slow_loader_is_data_bound(tmp_path: Path) -> None:
    found = profiled(tmp_path / "run", data={"dataset": f"{BOTTLENECKS}slow_digits", "options": {"seconds": 0.1}})
    assert found.verdict.limit == "data"
    assert "data.loader_workers" in found.verdict.advice


def test_a_slow_rank_is_named_as_the_straggler(tmp_path: Path) -> None:
    model = {"name": f"{BOTTLENECKS}slow_rank", "options": {"rank": 1, "seconds": 0.15}}
    found = profiled(tmp_path / "run", workers=2, model=model)
    assert (found.verdict.limit, found.verdict.slow_rank) == ("straggler", 1)
    assert found.ranks[0].waiting > 10 * found.ranks[1].waiting


def test_tiny_operators_are_host_bound(tmp_path: Path) -> None:
    found = profiled(tmp_path / "run", model={"name": f"{BOTTLENECKS}tiny_operators", "options": {"operators": 5000}})
    assert found.verdict.limit == "host"
    assert "raise loop.global_batch" in found.verdict.advice
    assert found.ranks[0].operators > 5000


def test_large_checkpoints_after_every_step_are_checkpoint_bound(tmp_path: Path) -> None:
    found = profiled(
        tmp_path / "run",
        model={"name": "mlp", "options": {"hidden": [1024, 1024]}},
        loop={"global_batch": 4},
        checkpoint={"every_steps": 1},
    )
    assert found.verdict.limit == "checkpoint"
    assert "checkpoint.every_steps=1" in found.verdict.advice


def test_large_gradients_of_small_batches_are_communication_bound(tmp_path: Path) -> None:
    found = profiled(
        tmp_path / "run",
        workers=2,
        model={"name": "mlp", "options": {"hidden": [2048, 2048, 2048]}},
        loop={"global_batch": 2, "clip_norm": None},
        optimizer={"name": "sgd", "momentum": 0.0, "weight_decay": 0.0},
        checkpoint={"every_steps": 1000},
    )
    assert found.verdict.limit == "communication"
    assert sum(rank.transfer for rank in found.ranks) > 0


def test_large_layers_on_one_rank_are_compute_bound(tmp_path: Path) -> None:
    found = profiled(
        tmp_path / "run",
        model={"name": "mlp", "options": {"hidden": [1024, 1024]}},
        loop={"global_batch": 256},
        checkpoint={"every_steps": 1000},
    )
    assert found.verdict.limit == "compute"
    assert found.ranks[0].top[0].name.startswith("aten::")


def test_the_profiled_steps_are_those_of_the_log_on_every_rank(tmp_path: Path) -> None:
    found = profiled(tmp_path / "run", workers=2)
    (profile,) = ProfileFolder.all_of(tmp_path / "run")
    for rank in range(2):
        assert [one.step for one in profile.rank_steps(rank).steps] == list(range(FIRST, FIRST + STEPS))
    for one in found.ranks:
        parts = one.data + one.checkpoint + one.compute + one.transfer + one.waiting + one.overhead
        assert parts == pytest.approx(one.step, rel=0.02)
