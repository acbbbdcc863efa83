"""Which offer is better: the policy."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime

from infra.lifecycle.capacity.judging import Certainty, Judged

_ORDER = tuple(Certainty)


def ranked(offers: Iterable[Judged]) -> tuple[Judged, ...]:
    """The offers, best first.

    An offer that meets the need comes before one that lacks something; then the more certain one, because a job that waits
    for nodes costs more than their price; then the cheaper, unknown prices last; then the earlier.
    """
    return tuple(sorted(offers, key=_key))


def _key(one: Judged) -> tuple[bool, int, float, datetime, tuple[str, ...]]:
    usd = math.inf if one.cost.usd is None else one.cost.usd
    return bool(one.shortfalls), _ORDER.index(one.certainty), usd, one.starts, one.zones
