"""What a rule is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from observability.postmortem.case import Case

RESUME = "make resume continues it from its newest checkpoint"


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why something ended, or waits.

    Attributes:
        kind: the rule that found it, for tests and statistics.
        sentence: what happened, with the object that it happened to.
        remedy: what to do about it; may be empty.
        time: when; None if it is not known.
    """

    kind: str
    sentence: str
    remedy: str = ""
    time: datetime | None = None


Rule = Callable[[Case], Iterator[Cause]]
"""Finds causes of one kind in a case, or nothing."""
