"""The decision after a failure, from what has failed so far: a pure function, without a clock, a disk or a cluster.

A failure is restarted while the budget of its cause lasts (`training.recovery.budgets`). Budgets are whole again after a failure before
which the run has committed `progress_steps` steps since the failure before. So a run of n steps is restarted at most
(n / progress_steps + 1) times the sum of all budgets, apart from preemptions, and what each driver allows begins anew.

What fails again and again is not restarted, whatever the budget: a step that failed three times, or a crash of native code in one place
that happened twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from training.failures import Failure
from training.recovery.budgets import Budget
from training.recovery.causes import Cause

POISON_FAILURES: Final = 3
"""Failures in one step that end the run."""


@dataclass(frozen=True, kw_only=True)
class Incident:
    """An attempt that failed.

    Attributes:
        attempt: its number, from 0.
        began: time at which it was started, in seconds of any clock.
        ended: time at which its failure was known.
        failure: what was found.
        committed: step of the newest checkpoint when it had ended; 0 without one.
    """

    attempt: int
    began: float
    ended: float
    failure: Failure
    committed: int

    @property
    def cause(self) -> Cause:
        """The cause of its failure."""
        return self.failure.cause


@dataclass(frozen=True, kw_only=True)
class Restart:
    """Another attempt is started.

    Attributes:
        delay: seconds before it.
        number: of the restart, of those that the budget counts.
        budget: of the cause.
    """

    delay: float
    number: int
    budget: Budget


@dataclass(frozen=True, kw_only=True)
class Stop:
    """The run ends.

    Attributes:
        reason: why there is no restart, in a sentence; empty if the cause has none.
        poison: the failures that repeat, oldest first; empty if the budget is spent.
    """

    reason: str = ""
    poison: Sequence[Incident] = ()


@dataclass(frozen=True, kw_only=True)
class RecoveryPolicy:
    """Restarts by cause.

    Attributes:
        budgets: of every cause.
        progress_steps: committed steps between two failures that make all budgets whole again.
        seed: of the backoffs' jitter.
    """

    budgets: Mapping[Cause, Budget]
    progress_steps: int
    seed: str = ""

    def decide(self, incidents: Sequence[Incident]) -> Restart | Stop:
        """The decision on the last of the incidents, which are those of one driver in their order, at least one."""
        last = incidents[-1]
        budget = self.budgets[last.cause]
        if budget.restarts == 0:
            return Stop()
        counted = self._since_progress(incidents)
        if repeated := _repeated(counted):
            return Stop(reason=_repetition(repeated), poison=repeated)
        in_a_row = _in_a_row(incidents)
        alike = [one for one in counted if one.cause is last.cause] if budget.deadline is None else in_a_row
        if budget.restarts is not None and len(alike) > budget.restarts:
            return Stop(reason=self._spent(last.cause, budget))
        delay = budget.backoff.seconds(len(alike), seed=f"{self.seed}:{last.cause}")
        if budget.deadline is not None and last.ended + delay - in_a_row[0].began > budget.deadline:
            return Stop(reason=f"No restart within {budget.deadline:g} s of the first start ({budget.setting}).")
        return Restart(delay=delay, number=len(alike), budget=budget)

    def _since_progress(self, incidents: Sequence[Incident]) -> Sequence[Incident]:
        """The incidents that the budgets still count."""
        for index in range(len(incidents) - 1, 0, -1):
            if incidents[index].committed - incidents[index - 1].committed >= self.progress_steps:
                return incidents[index:]
        return incidents

    def _spent(self, cause: Cause, budget: Budget) -> str:
        return (
            f"Restarts after {cause.plural} are used up: {budget.restarts} ({budget.setting}). {self.progress_steps} more committed steps "
            "(recovery.progress_steps) would have given them back."
        )


def _in_a_row(incidents: Sequence[Incident]) -> Sequence[Incident]:
    """The last incidents, as far as they have the same cause."""
    first = len(incidents)
    while first and incidents[first - 1].cause is incidents[-1].cause:
        first -= 1
    return incidents[first:]


def _repeated(incidents: Sequence[Incident]) -> Sequence[Incident]:
    """The failures that the last one repeats, with it, if they are too many. The node of a preemption failed for no reason in the run."""
    last = incidents[-1].failure
    incidents = [one for one in incidents if one.cause is not Cause.PREEMPTION]
    same_step = [one for one in incidents if last.step is not None and one.failure.step == last.step]
    if len(same_step) >= POISON_FAILURES:
        return same_step
    same_crash = [one for one in incidents if last.crashed_as(one.failure)]
    return same_crash if len(same_crash) > 1 else ()


def _repetition(repeated: Sequence[Incident]) -> str:
    last = repeated[-1].failure
    if len(repeated) >= POISON_FAILURES:
        return f"Step {last.step} failed {len(repeated)} times, so another restart would fail in it, too."
    return "An attempt before crashed in the same place, so another restart would, too."
