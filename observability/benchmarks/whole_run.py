"""Wall time of a whole run and time to its first step, compared with Ray Train's documented loop on the same job."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from observability.benchmarks.measure import Comparison, measure_alternately, parse_last_json, run_module
from observability.runlog import Phase, Step, read_all, select
from training.config.load import render
from training.config.schema import TrainingSettings

WALL_GOAL = 0.6
FIRST_STEP_GOAL = 1.0


@dataclass(kw_only=True)
class _FirstSteps:
    """Seconds from the command to the end of the first step in each round, and the parts of our last one."""

    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    parts: dict[str, float] = field(default_factory=dict)


def compare(settings: TrainingSettings, *, rounds: int, scratch: Path) -> tuple[list[Comparison], dict[str, float]]:
    """Compare `python -m training train`, with MLflow, checkpoints and report, with the documented loop; both on Ray.

    Returns:
        The two comparisons, and the parts of our start-up in seconds.
    """
    firsts = _FirstSteps()
    config = scratch / "whole-run.yaml"
    config.write_text(render(settings), encoding="utf-8")
    job = scratch / "whole-run.json"
    job.write_text(settings.model_dump_json(), encoding="utf-8")
    root = scratch / "runs"

    def ours() -> float:
        shutil.rmtree(root, ignore_errors=True)
        start, seconds, _ = run_module(
            "training", "train", "--config", str(config), "--set", f"run.directory={root}", "--name", "bench"
        )
        events = read_all(root / "bench")
        first = select(events, Step)[0].time
        firsts.ours.append(first - start)
        firsts.parts = _parts(start, select(events, Phase), first)
        return seconds

    def theirs() -> float:
        folder = scratch / "documented"
        shutil.rmtree(folder, ignore_errors=True)
        start, seconds, output = run_module(
            "observability.benchmarks.ray_documented", str(job), str(folder), RAY_AUTH_MODE="disabled"
        )
        firsts.theirs.append(float(parse_last_json(output)["first_step_time"]) - start)
        return seconds

    mine, others = measure_alternately(rounds, ours, theirs)
    wall = Comparison(name="whole run", unit="s", ours=mine, theirs=others, goal=WALL_GOAL)
    first = Comparison(name="first step", unit="s", ours=firsts.ours, theirs=firsts.theirs, goal=FIRST_STEP_GOAL)
    return [wall, first], firsts.parts


def _parts(start: float, phases: list[Phase], first_step: float) -> dict[str, float]:
    """Seconds of each part of start-up: from the command to the first phase, then each phase, ending with the first step."""
    times = [("command", start)]
    times += [(f"{phase.process}: {phase.name}", phase.time) for phase in phases if phase.time < first_step]
    times.append(("end", first_step))
    return {name: round(after - time, 3) for (name, time), (_, after) in pairwise(times)}
