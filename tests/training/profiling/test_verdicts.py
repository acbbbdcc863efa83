"""Real runs with a planted bottleneck get the verdict that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from observability.profiling.analysis import Analysis, analyse, run_figures
from observability.profiling.window import ProfileFolder
from tests.training.launch.ranks import run_world
from tests.training.runs import run_alone, small_settings

SMALL = {"name": "mlp", "options": {"hidden": [64]}}
BOTTLENECKS = "tests.training.profiling.bottlenecks:"
FIRST, STEPS = 3, 5
"""Steps 1 and 2 are slow in any run."""


def profiled(folder: Path, *, workers: int = 1, **sections: dict[str, Any]) -> Analysis:
    """The analysis of a real run with these settings, which is profiled from its third step on."""
    sections["loop"] = {"max_steps": FIRST + STEPS, **sections.get("loop", {})}
    sections["scale"] = {"launcher": "torchrun" if workers > 1 else "plain", "workers": workers}
    settings = small_settings(profile={"start_step": FIRST, "steps": STEPS}, **sections)
    (run_world if workers > 1 else run_alone)(settings, folder)
    (profile,) = ProfileFolder.all_of(folder)
    return analyse(profile, run_figures(folder))


def test_a_slow_loader_is_data_bound(tmp_path: Path) -> None:
    found = profiled(
        tmp_path / "run", data={"dataset": f"{BOTTLENECKS}slow_digits", "options": {"seconds": 0.4}}, model=SMALL
    )
    assert found.verdict.limit == "data"
    assert "data.loader_workers" in found.verdict.advice


def test_a_slow_rank_is_named_as_the_straggler_and_the_parts_of_the_chosen_steps_add_up(tmp_path: Path) -> None:
    model = {"name": f"{BOTTLENECKS}slow_rank", "options": {"rank": 1, "seconds": 0.4}}
    found = profiled(tmp_path / "run", workers=2, model=model)
    assert (found.verdict.limit, found.verdict.slow_rank) == ("straggler", 1)
    assert found.ranks[0].waiting > found.ranks[1].waiting
    profile = ProfileFolder.of_step(tmp_path / "run", FIRST)
    for rank, one in enumerate(found.ranks):
        assert [step.step for step in profile.rank_steps(rank).steps] == list(range(FIRST, FIRST + STEPS))
        parts = one.data + one.checkpoint + one.compute + one.transfer + one.waiting + one.overhead
        assert parts == pytest.approx(one.step, rel=0.02)


def test_large_layers_on_one_rank_are_compute_bound(tmp_path: Path) -> None:
    found = profiled(
        tmp_path / "run",
        model={"name": "mlp", "options": {"hidden": [1024, 1024]}},
        loop={"global_batch": 256},
        checkpoint={"every_steps": 1000},
    )
    assert found.verdict.limit == "compute"
    assert found.ranks[0].top[0].name.startswith("aten::")
