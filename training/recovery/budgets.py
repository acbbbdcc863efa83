"""Budgets: how often, or how long, failures of a cause are restarted, and what each restart waits for."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from training.config.recovery import RestartSettings, StartRestarts
from training.config.schema import TrainingSettings
from training.recovery.causes import Cause


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Delays that double up to a limit.

    Attributes:
        first: seconds before the first restart.
        second: seconds before the second one; the delay of restart n is `second * 2 ** (n - 2)` from there on.
        longest: seconds at most.
        jitter: share of the delay by which it is shortened at most, 0 <= jitter < 1.
    """

    first: float = 0.0
    second: float = 0.0
    longest: float = 0.0
    jitter: float = 0.0

    def seconds(self, restart: int, *, seed: str = "") -> float:
        """The delay before a restart, numbered from 1. Equal seeds and numbers give equal delays.

        Args:
            restart: its number.
            seed: of the jitter.
        """
        doublings = min(restart - 2, 64)  # from there on a float would overflow some time, and the limit holds anyway
        delay = min(self.longest, self.first if restart == 1 else self.second * 2.0**doublings)
        return delay * (1 - self.jitter * random.Random(f"{seed}:{restart}").random())  # noqa: S311 - no secret


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a cause may spend.

    Attributes:
        restarts: their number between two commits of enough steps; None without a limit.
        deadline: seconds from the begin of the first attempt that failed this way in a row, in which a restart may begin; None without.
        backoff: delays of the restarts.
        setting: names the setting that raises it; empty if none does.
    """

    restarts: int | None = 0
    deadline: float | None = None
    backoff: Backoff = field(default_factory=Backoff)
    setting: str = ""


def budgets_of(settings: TrainingSettings) -> Mapping[Cause, Budget]:
    """The budget of every cause. Under `scale.max_restarts` 0 nothing but a preemption is restarted."""
    recovery, scale = settings.recovery, settings.scale

    def counted(cause: Cause, given: RestartSettings) -> Budget:
        is_shared = given.restarts is None
        return Budget(
            restarts=scale.max_restarts if is_shared else given.restarts,
            backoff=Backoff(
                first=given.first_delay, second=given.delay, longest=given.longest_delay, jitter=recovery.jitter
            ),
            setting="scale.max_restarts" if is_shared else f"recovery.{cause}.restarts",
        )

    def timed(cause: Cause, given: StartRestarts) -> Budget:
        return Budget(
            restarts=None,
            deadline=given.deadline or scale.start_timeout,
            backoff=Backoff(
                first=given.delay, second=2 * given.delay, longest=given.longest_delay, jitter=recovery.jitter
            ),
            setting="scale.start_timeout" if given.deadline is None else f"recovery.{cause}.deadline",
        )

    without = {cause: Budget() for cause in Cause} | {Cause.PREEMPTION: Budget(restarts=None)}
    if scale.max_restarts == 0:
        return without
    return without | {
        Cause.LOST_PROCESS: counted(Cause.LOST_PROCESS, recovery.lost_process),
        Cause.LOST_NODE: counted(Cause.LOST_NODE, recovery.lost_node),
        Cause.COMMUNICATION: counted(Cause.COMMUNICATION, recovery.communication),
        Cause.HANG: counted(Cause.HANG, recovery.hang),
        Cause.HARDWARE: counted(Cause.HARDWARE, recovery.hardware),
        Cause.STORAGE: counted(Cause.STORAGE, recovery.storage),
        Cause.STARTUP: timed(Cause.STARTUP, recovery.startup),
        Cause.SCHEDULING: timed(Cause.SCHEDULING, recovery.scheduling),
    }
