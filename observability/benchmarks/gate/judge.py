"""Judges a result against its baseline: worse, better, unchanged, or too uncertain to say.

The compared value is the median over rounds of the ratio of both sides, on a logarithmic scale, so that a gain and a loss of the same
factor weigh the same. A change of `LIMIT` counts only if its standard error is at most `PRECISION`, half of the limit: then noise alone
passes the limit in 4.6 % of all results (two standard errors), and a change of twice the limit is found in 97.7 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

LIMIT = 0.05
"""Relative change that the gate reacts to."""

PRECISION = LIMIT / 2
"""Largest standard error of the relative change with which it is judged."""

MIN_ROUNDS = 5
"""Fewer rounds say too little about their own noise."""

_RESAMPLES = 2000


class Outcome(StrEnum):
    """What became of a result.

    Attributes:
        WORSE: at least `LIMIT` worse: a regression.
        BETTER: at least `LIMIT` better: the baseline is out of date, and would hide the next regression.
        UNCHANGED: closer than that.
        UNCERTAIN: too few or too different rounds.
    """

    WORSE = "worse"
    BETTER = "better"
    UNCHANGED = "unchanged"
    UNCERTAIN = "uncertain"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A judged result.

    Attributes:
        change: relative change from the baseline, e.g. 0.05 for a ratio that is 5 % larger.
        error: standard error of the change.
        rounds_needed: rounds with which the standard error would be small enough if the noise stays the same; None if no number
            of them is enough, because the baseline itself is too uncertain.
    """

    outcome: Outcome
    change: float
    error: float
    rounds_needed: int | None


def judge(ratios: Sequence[float], baseline: Sequence[float], *, higher_is_better: bool) -> Verdict:
    """Compare the ratios of a result's rounds with those of the baseline.

    Args:
        ratios: one ratio a round, all positive.
        baseline: the rounds of all results that were accepted as the baseline.
        higher_is_better: whether a larger ratio is better.

    Raises:
        ValueError: one side has no rounds, or a ratio is not positive.
    """
    for name, values in (("result", ratios), ("baseline", baseline)):
        if not values or not all(math.isfinite(one) and one > 0 for one in values):
            raise ValueError(f"the {name} needs one positive ratio for each round, got {list(values)}")
    new, old = np.log(ratios), np.log(baseline)
    change = math.expm1(float(np.median(new) - np.median(old)))
    new_error, old_error = _error_of_median(new), _error_of_median(old)
    error = math.hypot(new_error, old_error)
    needed = _rounds_needed(len(ratios), new_error, old_error)
    if min(len(ratios), len(baseline)) < MIN_ROUNDS or error > PRECISION:
        outcome = Outcome.UNCERTAIN
    elif abs(math.log1p(change)) < math.log1p(LIMIT):
        outcome = Outcome.UNCHANGED
    else:
        outcome = Outcome.BETTER if (change > 0) == higher_is_better else Outcome.WORSE
    return Verdict(outcome=outcome, change=change, error=error, rounds_needed=needed)


def _error_of_median(values: NDArray[np.float64]) -> float:
    """Standard error of the median, by resampling the rounds with replacement (Efron and Tibshirani, 1993, chapter 6)."""
    if len(values) < 2:
        return math.inf
    picks = np.random.default_rng(0).integers(len(values), size=(_RESAMPLES, len(values)))
    return float(np.median(values[picks], axis=1).std(ddof=1))


def _rounds_needed(rounds: int, new_error: float, old_error: float) -> int | None:
    """Rounds with which the error is small enough: it falls with their square root, and the baseline's part of it stays."""
    room = PRECISION**2 - old_error**2
    if room <= 0:
        return None
    return max(MIN_ROUNDS, math.ceil(rounds * new_error**2 / room)) if math.isfinite(new_error) else MIN_ROUNDS
