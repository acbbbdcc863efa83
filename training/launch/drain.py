"""When ranks leave a node that is about to go: once their replacements are ready, otherwise as late as is safe."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_SAVES: Final = 3.0
"""Times that a checkpoint must fit into what is left of the notice, at the speed of the slowest so far."""

_RESERVE_S: Final = 5.0
"""Besides: to reach a step's end on all ranks, and for whoever ends the node early."""


@dataclass(frozen=True, kw_only=True)
class DrainNotice:
    """Nodes of the worker group are about to go.

    Attributes:
        ranks: those on these nodes.
        deadline: Unix time at which the first of them goes; infinite if nobody said.
        has_replacements: as many other workers are ready.
    """

    ranks: tuple[int, ...]
    deadline: float
    has_replacements: bool

    def describe(self, now: float) -> str:
        """The notice in words, e.g. `the node of rank 1 is being drained and goes in 20 s`."""
        names = ", ".join(map(str, self.ranks))
        which = f"the node of rank {names} is" if len(self.ranks) == 1 else f"the nodes of ranks {names} are"
        when = "" if math.isinf(self.deadline) else f" and {'goes' if len(self.ranks) == 1 else 'go'} in "
        return f"{which} being drained{when}" + (f"{max(0.0, self.deadline - now):.0f} s" if when else "")


def leaves_at(notice: DrainNotice, *, now: float, save_seconds: float) -> float:
    """The time at which the ranks commit and leave.

    Without replacements, the next attempt has to wait for them, or has fewer workers: so the ranks train as long as it is safe.

    Args:
        notice: the newest one.
        now: Unix time.
        save_seconds: of the slowest checkpoint so far, until it was committed.
    """
    if notice.has_replacements or math.isinf(notice.deadline):
        return now
    return max(now, notice.deadline - _SAVES * save_seconds - _RESERVE_S)
