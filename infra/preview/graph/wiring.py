"""How the lines of a channel run: beside rows, with a branch to each row that a line connects.

Lengths are units of the sheet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from infra.preview.graph.connections import Bundle

_TRACKS_GAP = 1.3
"""Smallest distance between two lines on one track."""

_BRANCHES_GAP = 0.7
"""Smallest distance between the branches of two ends that are opposite each other, where there is room for it."""


@dataclass(frozen=True, kw_only=True)
class Wire:
    """A bundle of connections: a vertical line in a channel, with a branch to every end.

    Attributes:
        bundle: what it connects.
        track: its place in the channel, 0 is the nearest to the rows.
        sources: y of the branches to its sources, in their order.
        targets: y of the branches to its targets, in their order.
    """

    bundle: Bundle
    track: int
    sources: tuple[float, ...]
    targets: tuple[float, ...]


def wires_of(bundles: Sequence[Bundle], spans: Mapping[str, tuple[float, float]]) -> tuple[Wire, ...]:
    """Lay bundles in a channel, so that no two lines lie on each other.

    Args:
        bundles: the bundles.
        spans: smallest and largest y of each end's side along the channel.
    """
    ends: dict[str, list[Bundle]] = {}
    for bundle in bundles:
        for end in (*bundle.sources, *bundle.targets):
            ends.setdefault(end, []).append(bundle)
    # In the order of what they connect, which saves crossings.
    middle = {one: fmean(sum(spans[end]) for end in (*one.sources, *one.targets)) for one in bundles}
    ports: dict[tuple[str, Bundle], float] = {}
    # The ends with the least room choose first.
    for end in sorted(ends, key=lambda one: (spans[one][1] - spans[one][0], one)):
        using = sorted(ends[end], key=lambda one: (middle[one], one))
        places = _ports(*spans[end], len(using), taken=tuple(ports.values()))
        ports.update(zip(((end, bundle) for bundle in using), places, strict=True))
    free: list[list[tuple[float, float]]] = []
    wires = []
    for bundle in sorted(bundles, key=lambda one: (_length(one, ports), one)):
        branches = [ports[end, bundle] for end in (*bundle.sources, *bundle.targets)]
        low, high = min(branches) - _TRACKS_GAP, max(branches) + _TRACKS_GAP
        track = next(
            (index for index, taken in enumerate(free) if all(high < start or low > end for start, end in taken)),
            len(free),
        )
        if track == len(free):
            free.append([])
        free[track].append((low, high))
        count = len(bundle.sources)
        wires.append(Wire(bundle=bundle, track=track, sources=tuple(branches[:count]), targets=tuple(branches[count:])))
    return tuple(wires)


def _ports(low: float, high: float, count: int, *, taken: Sequence[float]) -> list[float]:
    """Evenly spaced places for branches, moved a little where one on the other side of the channel is too near."""
    room = (high - low) / (count + 1)
    even = [low + room * (index + 1) for index in range(count)]
    steps = int(room / _BRANCHES_GAP)
    for step in sorted(range(-steps, steps + 1), key=abs):
        places = [place + step * _BRANCHES_GAP for place in even]
        if low < places[0] and places[-1] < high and _are_apart(places, taken):
            return places
    return even


def _are_apart(places: Sequence[float], taken: Sequence[float]) -> bool:
    return all(abs(place - other) >= _BRANCHES_GAP for place in places for other in taken)


def _length(bundle: Bundle, ports: dict[tuple[str, Bundle], float]) -> float:
    branches = [ports[end, bundle] for end in (*bundle.sources, *bundle.targets)]
    return max(branches) - min(branches)
