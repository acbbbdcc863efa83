"""Real runs with a planted bottleneck get the verdict that names it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from observability.profiling.analysis import Analysis, analyse, run_figures
from observability.profiling.window import ProfileFolder
from tests.engines.hosts import Host, hosts
from tests.training.launch.driver import PATIENCE
from tests.training.launch.ranks import run_world
from tests.training.runs import run_alone, small_settings
from training.config.schema import TrainingSettings
from training.launch.processes import DRIVER_VARIABLE
from training.launch.task import RankTask

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


def run_on_hosts(settings: TrainingSettings, folder: Path, machines: Sequence[Host]) -> None:
    """Run a rank on each host, without a launcher."""
    folder.mkdir()
    task = RankTask(settings=settings, run_directory=folder, attempt=0)
    task_file = folder / "task.json"
    task_file.write_text(json.dumps(task.dump()))
    group = {"WORLD_SIZE": str(len(machines)), "MASTER_ADDR": machines[0].address, "MASTER_PORT": "29400"}
    ranks = [
        subprocess.Popen(
            [*machine.prefix, sys.executable, "-m", "training.launch.rank", str(task_file)],
            env={**os.environ, **group, "RANK": str(rank), "OMP_NUM_THREADS": "1", DRIVER_VARIABLE: str(os.getpid())},
        )
        for rank, machine in enumerate(machines)
    ]
    assert [rank.wait(PATIENCE) for rank in ranks] == [0] * len(ranks)


def test_a_slow_loader_is_data_bound(tmp_path: Path) -> None:
    found = profiled(
        tmp_path / "run", data={"dataset": f"{BOTTLENECKS}slow_digits", "options": {"seconds": 0.4}}, model=SMALL
    )
    assert found.verdict.limit == "data"
    assert "data.loader_workers" in found.verdict.advice


@pytest.fixture(scope="module")
def with_slow_rank(tmp_path_factory: pytest.TempPathFactory) -> tuple[ProfileFolder, Analysis]:
    """The profile of a run whose rank 1 takes longer than rank 0, and its analysis."""
    model = {"name": f"{BOTTLENECKS}slow_rank", "options": {"rank": 1, "seconds": 0.4}}
    folder = tmp_path_factory.mktemp("slow_rank") / "run"
    found = profiled(folder, workers=2, model=model)
    return ProfileFolder.of_step(folder, FIRST), found


def test_a_slow_rank_is_named_as_the_straggler(with_slow_rank: tuple[ProfileFolder, Analysis]) -> None:
    _, found = with_slow_rank
    assert (found.verdict.limit, found.verdict.slow_rank) == ("straggler", 1)
    assert found.ranks[0].waiting > found.ranks[1].waiting


def test_the_profiled_steps_are_those_of_the_settings_on_every_rank_and_their_parts_add_up(
    with_slow_rank: tuple[ProfileFolder, Analysis],
) -> None:
    profile, found = with_slow_rank
    for rank in range(2):
        assert [one.step for one in profile.rank_steps(rank).steps] == list(range(FIRST, FIRST + STEPS))
    for one in found.ranks:
        parts = one.data + one.checkpoint + one.compute + one.transfer + one.waiting + one.overhead
        assert parts == pytest.approx(one.step, rel=0.02)


def test_tiny_operators_are_host_bound(tmp_path: Path) -> None:
    found = profiled(tmp_path / "run", model={"name": f"{BOTTLENECKS}tiny_operators", "options": {"operators": 5000}})
    assert found.verdict.limit == "host"
    assert "raise loop.global_batch" in found.verdict.advice
    assert found.ranks[0].operators > 5000


def test_large_checkpoints_after_every_step_are_checkpoint_bound(tmp_path: Path) -> None:
    model = {"name": f"{BOTTLENECKS}large_state", "options": {"values": 24_000_000}}
    found = profiled(tmp_path / "run", model=model, checkpoint={"every_steps": 1})
    assert found.verdict.limit == "checkpoint"
    assert "checkpoint.every_steps" in found.verdict.advice


@pytest.mark.long
def test_large_gradients_through_a_slow_network_are_communication_bound(tmp_path: Path) -> None:
    settings = small_settings(
        model={"name": "mlp", "options": {"hidden": [512, 512]}},
        loop={"max_steps": FIRST + STEPS, "global_batch": 8},
        scale={"launcher": "torchrun", "workers": 2, "nodes": 2, "rendezvous": "unused:1"},
        profile={"start_step": FIRST, "steps": STEPS},
        checkpoint={"every_steps": 1000},
    )
    with hosts(2, rate="50mbit") as machines:  # 1.2 MB of gradients take 0.2 s
        run_on_hosts(settings, tmp_path / "run", machines)
    (profile,) = ProfileFolder.all_of(tmp_path / "run")
    found = analyse(profile, run_figures(tmp_path / "run"))
    assert found.verdict.limit == "communication"
    assert "raise loop.accumulation" in found.verdict.advice


def test_large_layers_on_one_rank_are_compute_bound(tmp_path: Path) -> None:
    found = profiled(
        tmp_path / "run",
        model={"name": "mlp", "options": {"hidden": [1024, 1024]}},
        loop={"global_batch": 256},
        checkpoint={"every_steps": 1000},
    )
    assert found.verdict.limit == "compute"
    assert found.ranks[0].top[0].name.startswith("aten::")
