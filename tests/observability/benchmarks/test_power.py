"""The power of the gate, computed from rounds with known noise."""

from __future__ import annotations

import numpy as np
import pytest

from observability.benchmarks.gate.judge import Outcome
from observability.benchmarks.gate.power import outcomes, report

GENERATOR = np.random.default_rng(3)


def rounds(level: float, *, noise: float, count: int = 40) -> list[float]:
    """Rounds around a level, with a relative standard deviation."""
    return [level * float(np.exp(one)) for one in GENERATOR.normal(0, noise, count)]


def test_a_quiet_machine_finds_a_tenth_with_few_rounds_and_takes_no_noise_for_a_change() -> None:
    quiet = rounds(1.0, noise=0.02)
    assert outcomes(quiet, rounds(1.1, noise=0.02), rounds=6)[Outcome.WORSE] >= 190
    assert outcomes(quiet, quiet, rounds=6)[Outcome.UNCHANGED] >= 190


def test_a_noisy_machine_needs_more_rounds() -> None:
    noisy, slower = rounds(1.0, noise=0.08), rounds(1.1, noise=0.08)
    few, many = (outcomes(noisy, slower, rounds=count) for count in (6, 30))
    assert few[Outcome.UNCERTAIN] > 100 > many[Outcome.UNCERTAIN]
    assert few[Outcome.UNCHANGED] == many[Outcome.BETTER] == 0


def test_too_few_rounds_to_draw_from_are_refused() -> None:
    with pytest.raises(ValueError, match="needs 15 rounds or more of both, got 14 and 40"):
        outcomes([1.0] * 14, [1.0] * 40, rounds=6)


def test_the_report_names_the_measured_change_and_every_size_of_a_result() -> None:
    level = [1.0] * 20
    lines = report(
        {"platform": level, "bare_ddp": level, "slower_platform": [1.1] * 20, "slower_bare_ddp": [1.25] * 20}
    )
    assert len(lines) == 12
    assert lines[4] == "platform slower by a tenth, +10.0% in the median; of 200 results of 6 rounds: worse 200"
    assert lines[8] == "baseline slower by a tenth, -20.0% in the median; of 200 results of 6 rounds: better 200"
