"""Policy: whether a failed worker group is restarted; `training.supervisor` carries it out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from training.failures import Failure


class Decision(StrEnum):
    """The response to a failure."""

    RESTART = "restart"
    FAIL = "fail"


@dataclass(frozen=True, kw_only=True)
class RestartPolicy:
    """Restarts after failures that another attempt may not repeat: workers that were killed or lost their peers.

    An exception in the code or invalid input would fail again, and so does what failed twice in the same way.

    Attributes:
        max_restarts: restarts by one driver; after that, a transient failure ends the run too.
    """

    max_restarts: int

    def decide(self, failure: Failure, *, restarts: int, earlier: Failure | None = None) -> Decision:
        """The decision on `failure`, after `restarts` restarts so far, the last one because of the `earlier` failure."""
        if failure.is_transient and restarts < self.max_restarts and not failure.repeats(earlier):
            return Decision.RESTART
        return Decision.FAIL
