"""The gate finds changes of a tenth and ignores noise, with the noise of real rounds."""

from __future__ import annotations

import numpy as np
import pytest

from observability.benchmarks.gate.judge import MIN_ROUNDS, PRECISION, Outcome, judge

_TRIALS = 200


def _rounds(count: int, *, noise: float, generator: np.random.Generator, change: float = 0.0) -> list[float]:
    """Ratios with the noise of a machine with other load: mostly normal, with one round in ten that something disturbed."""
    spread = np.where(generator.random(count) < 0.1, 4 * noise, noise)
    return [float(one) for one in (1 + change) * np.exp(generator.normal(0, spread))]


def _outcomes(*, change: float, noise: float, rounds: int, higher_is_better: bool = True) -> list[Outcome]:
    generator = np.random.default_rng(7)
    found = []
    for _ in range(_TRIALS):
        baseline = _rounds(3 * rounds, noise=noise, generator=generator)
        new = _rounds(rounds, noise=noise, generator=generator, change=change)
        found.append(judge(new, baseline, higher_is_better=higher_is_better).outcome)
    return found


def test_a_change_of_a_tenth_is_found_in_nineteen_of_twenty() -> None:
    for change, expected in ((-0.1, Outcome.WORSE), (0.1, Outcome.BETTER)):
        for rounds in (5, 10):
            found = _outcomes(change=change, noise=0.02, rounds=rounds)
            decided = _TRIALS - found.count(Outcome.UNCERTAIN)
            assert decided >= 0.8 * _TRIALS
            assert found.count(expected) >= 0.95 * decided, (change, rounds)


def test_noise_is_taken_for_a_change_in_at_most_one_of_twenty() -> None:
    for noise in (0.01, 0.02, 0.05):
        found = _outcomes(change=0.0, noise=noise, rounds=6)
        assert sum(one in {Outcome.WORSE, Outcome.BETTER} for one in found) <= 0.05 * _TRIALS, noise


def test_more_time_is_worse_where_less_is_better() -> None:
    assert set(_outcomes(change=0.2, noise=0.01, rounds=6, higher_is_better=False)) == {Outcome.WORSE}


def test_too_few_rounds_are_never_judged() -> None:
    verdict = judge([0.5] * (MIN_ROUNDS - 1), [1.0] * 10, higher_is_better=True)
    assert verdict.outcome is Outcome.UNCERTAIN
    assert verdict.rounds_needed == MIN_ROUNDS
    for ratios in ([], [1.0, 0.0], [1.0, float("nan")]):
        with pytest.raises(ValueError, match="needs one positive ratio for each round"):
            judge(ratios, [1.0] * 5, higher_is_better=True)


def test_noisy_rounds_say_how_many_are_needed() -> None:
    generator = np.random.default_rng(1)
    baseline = _rounds(40, noise=0.02, generator=generator)
    few = judge(_rounds(6, noise=0.15, generator=generator), baseline, higher_is_better=True)
    assert few.outcome is Outcome.UNCERTAIN
    assert few.error > PRECISION
    assert few.rounds_needed is not None
    assert few.rounds_needed > 6
    useless = judge(baseline, _rounds(5, noise=0.3, generator=generator), higher_is_better=True)
    assert useless.rounds_needed is None
