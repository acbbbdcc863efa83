"""How the lines of a channel run: beside rows, with a branch to each row that a line connects.

Lengths are units of the sheet, and y grows in one direction along the channel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.preview.graph.connections import Bundle

_TRACKS_GAP = 1.3
"""Smallest distance between two lines on one track."""


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
        spans: upper and lower edge of each end's side along the channel.
    """
    ends: dict[str, list[Bundle]] = {}
    for bundle in bundles:
        for end in (*bundle.sources, *bundle.targets):
            ends.setdefault(end, []).append(bundle)
    # Where a bundle goes up from an end its branch leaves above those that go down, which saves crossings.
    middle = {one: _mean([sum(spans[end]) / 2 for end in (*one.sources, *one.targets)]) for one in bundles}
    ports: dict[tuple[str, Bundle], float] = {}
    for end, using in ends.items():
        top, bottom = spans[end]
        for index, bundle in enumerate(sorted(using, key=lambda one: (middle[one], one))):
            ports[end, bundle] = top + (bottom - top) * (index + 1) / (len(using) + 1)
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


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _length(bundle: Bundle, ports: dict[tuple[str, Bundle], float]) -> float:
    branches = [ports[end, bundle] for end in (*bundle.sources, *bundle.targets)]
    return max(branches) - min(branches)
