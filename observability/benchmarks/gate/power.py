"""How often the gate finds a change of ten percent, and how often it takes noise for one: `python -m observability.benchmarks.gate.power`.

The rounds are real, and so is the change: every step of one side is made longer by a tenth of a step. Results and baselines of several
sizes are then drawn from these rounds many times, with replacement, because a gate that is judged by one result of each kind says
nothing about nineteen of twenty.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from observability.benchmarks import options
from observability.benchmarks.gate.judge import Outcome, judge
from observability.benchmarks.measure import describe_machine, measure_alternately
from observability.benchmarks.timed_model import mean_cost
from observability.benchmarks.timed_run import run_bare_ddp, run_platform, with_timed_model
from training.config.schema import TrainingSettings

CHANGE = 0.1
"""The part of a step by which the slower side is slower."""

RESULT_ROUNDS = (6, 12, 20, 30)
"""Rounds of a result."""

BASELINE_RESULTS = 3
"""Results of the same size that the baseline pools."""

DRAWS = 200
"""Pairs of a result and a baseline that are drawn."""

LEAST_ROUNDS = 15
"""Rounds to draw from: fewer hardly show the noise of a machine."""


def outcomes(ratios: Sequence[float], changed: Sequence[float], *, rounds: int, draws: int = DRAWS) -> Counter[Outcome]:
    """Judge results drawn from `changed` against baselines drawn from `ratios`.

    Args:
        ratios: ours / theirs of each round, unchanged.
        changed: the same of a changed program.
        rounds: of a result.
        draws: how many results are judged.

    Returns:
        How many results had each outcome; less is better, as of seconds.

    Raises:
        ValueError: too few rounds to draw from.
    """
    if min(len(ratios), len(changed)) < LEAST_ROUNDS:
        raise ValueError(f"needs {LEAST_ROUNDS} rounds or more of both, got {len(ratios)} and {len(changed)}")
    generator = np.random.default_rng(0)
    found: Counter[Outcome] = Counter()
    for _ in range(draws):
        baseline = generator.choice(ratios, BASELINE_RESULTS * rounds).tolist()
        result = generator.choice(changed, rounds).tolist()
        found[judge(result, baseline, higher_is_better=False).outcome] += 1
    return found


def measure(settings: TrainingSettings, *, rounds: int, scratch: Path) -> dict[str, list[float]]:
    """Seconds per step of platform and bare loop, each as it is and with a tenth of its step added.

    Returns:
        The sides by name, one value per round.
    """

    def step(run: Callable[[TrainingSettings, Path], None], delay: float = 0.0) -> float:
        folder = Path(tempfile.mkdtemp(dir=scratch))
        run(with_timed_model(settings, folder, delay=delay), folder)
        return mean_cost(folder).wall

    our_tenth, their_tenth = CHANGE * step(run_platform), CHANGE * step(run_bare_ddp)

    def platform() -> float:
        return step(run_platform)

    def bare_ddp() -> float:
        return step(run_bare_ddp)

    def slower_platform() -> float:
        return step(run_platform, our_tenth)

    def slower_bare_ddp() -> float:
        return step(run_bare_ddp, their_tenth)

    sides = (platform, bare_ddp, slower_platform, slower_bare_ddp)
    return dict(zip((side.__name__ for side in sides), measure_alternately(rounds, *sides), strict=True))


def main() -> int:
    """Measure, print a line per kind of change, and write the rounds."""
    command_line = options.power()
    arguments = command_line.parse_args()
    if arguments.rounds < LEAST_ROUNDS:
        command_line.error(f"--rounds is {arguments.rounds}; {LEAST_ROUNDS} are the least")
    with tempfile.TemporaryDirectory(prefix="rtp-bench-") as folder:
        seconds = measure(_job(), rounds=arguments.rounds, scratch=Path(folder))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps({"machine": describe_machine(), "seconds": seconds}, indent=2))
    for line in report(seconds):
        print(line)
    print(f"{describe_machine()}\nwritten to {arguments.json}")
    return 0


def report(seconds: Mapping[str, Sequence[float]]) -> list[str]:
    """A line for each kind of change and size of a result: the measured change, and what the gate made of it."""
    ours, theirs = seconds["platform"], seconds["bare_ddp"]
    unchanged = _ratios(ours, theirs)
    kinds = {
        "no change": unchanged,
        "platform slower by a tenth": _ratios(seconds["slower_platform"], theirs),
        "baseline slower by a tenth": _ratios(ours, seconds["slower_bare_ddp"]),
    }
    lines = []
    for name, ratios in kinds.items():
        change = float(np.median(ratios) / np.median(unchanged)) - 1
        for rounds in RESULT_ROUNDS:
            counts = outcomes(unchanged, ratios, rounds=rounds)
            said = ", ".join(f"{outcome} {counts[outcome]}" for outcome in Outcome if counts[outcome])
            lines.append(f"{name}, {change:+.1%} in the median; of {counts.total()} results of {rounds} rounds: {said}")
    return lines


def _ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


def _job() -> TrainingSettings:
    """The small network, whose steps have the most noise."""
    return TrainingSettings.model_validate(
        {
            "scale": {"launcher": "torchrun", "workers": 2},
            "tracking": {"enabled": False},
            "data": {"augment": False},
            "loop": {"epochs": 1000, "max_steps": 400, "evaluate_every": 1000},
        }
    )


if __name__ == "__main__":
    sys.exit(main())
