"""Compare version numbers in tags: only tags of one numbering scheme can be compared."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

_NUMBER = re.compile(r"\d+(?:\.\d+)*")


class _Parts(NamedTuple):
    """A tag as text and numbers: `4.6.0-4.8.3-distroless` is ("", "-", "-distroless") and ((4, 6, 0), (4, 8, 3))."""

    text: tuple[str, ...]
    numbers: tuple[tuple[int, ...], ...]

    @property
    def scheme(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """What two comparable tags have in common: the text, and how many numbers are where."""
        return self.text, tuple(len(group) for group in self.numbers)


def _parts(tag: str) -> _Parts:
    numbers = (tuple(int(digits) for digits in found.split(".")) for found in _NUMBER.findall(tag))
    return _Parts(tuple(_NUMBER.split(tag)), tuple(numbers))


def newer_like(tag: str, available: Iterable[str]) -> str | None:
    """The highest tag above `tag` with its numbering scheme; None if there is none.

    The text decides the variant: `v3.14.0-distroless` is compared neither with `v3.15.0` nor with
    `v3.15.0-rc.1-distroless`, and `13.2.0` not with `13.2`.
    """
    ours = _parts(tag)
    others = {other: _parts(other) for other in available}
    comparable = {other: parts.numbers for other, parts in others.items() if parts.scheme == ours.scheme}
    best = max(comparable, key=comparable.__getitem__, default=None)
    return best if best is not None and comparable[best] > ours.numbers else None


def releases(versions: Iterable[str]) -> tuple[str, ...]:
    """The versions that are not pre-releases, highest first. Other text is ignored."""
    parsed: dict[str, Version] = {}
    for version in versions:
        try:
            parsed[version] = Version(version.replace("_", "+"))
        except InvalidVersion:
            continue
    final = [version for version, order in parsed.items() if not order.is_prerelease]
    return tuple(sorted(final, key=parsed.__getitem__, reverse=True))


def newest_release(versions: Iterable[str]) -> str | None:
    """The highest version that is not a pre-release; None if there is none."""
    return next(iter(releases(versions)), None)


def newer_releases(version: str, available: Iterable[str]) -> tuple[str, ...]:
    """The releases above `version`, highest first."""
    return tuple(one for one in releases(available) if Version(one.replace("_", "+")) > Version(version))
