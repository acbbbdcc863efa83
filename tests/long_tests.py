"""Leaves out long tests, so that the whole suite stays short enough to run before every commit.

A long test is marked `long`. It repeats what a shorter one proves, with more kills, on more hosts, with another launcher or scheduler;
or it puts together what shorter ones prove in parts, as a run on machines that Ray's launcher has started.

    make test              without them
    make test LONG=1       with all of them
    make test LONG=2/4     with the second quarter of them; continuous integration takes another quarter for each commit

The long tests of one file are in the same part, because they may share what takes the time; those marked `long(apart=True)` do
not. A test that is named, by path or with -k, runs whether it is long or not.
"""

from __future__ import annotations

import argparse
import re
from typing import NamedTuple

import pytest

from tests.distribution import is_whole_suite

_HELP = "of the tests marked long, run 0 (none), 1 (all) or a part such as 2/4 (the second of four); default: 0"


class Share(NamedTuple):
    """Part `number` of `parts` equal parts; part 0 is none of them."""

    number: int
    parts: int

    @classmethod
    def parse(cls, text: str) -> Share:
        """Share of an option's value.

        Raises:
            argparse.ArgumentTypeError: not 0, 1 or K/N with K from 1 to N.
        """
        match = re.fullmatch(r"(\d+)(?:/(\d+))?", text)
        number, parts = (int(match[1]), int(match[2] or 1)) if match else (-1, 0)
        if not (0 < number <= parts or text == "0"):
            raise argparse.ArgumentTypeError(f"{text!r} is no share of the long tests; give 0, 1 or K/N, such as 2/4")
        return cls(number, parts)

    def has(self, position: int) -> bool:
        """Whether the tests at this position, counted from 0, are in this part."""
        return self.number > 0 and position % self.parts == self.number - 1


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the share of the long tests."""
    parser.addoption("--long", metavar="SHARE", type=Share.parse, help=_HELP)


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    config.addinivalue_line(
        "markers",
        "long(apart=False): repeats or puts together what shorter tests prove, and takes long; see tests/long_tests.py",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the long tests that are not in the share."""
    share: Share | None = config.getoption("long")
    if share is None and not is_whole_suite(config):
        return
    share = share or Share(0, 1)
    together = {item: _together(item, mark) for item in items if (mark := item.get_closest_marker("long"))}
    positions = {one: position for position, one in enumerate(dict.fromkeys(together.values()))}
    left_out = {item for item, one in together.items() if not share.has(positions[one])}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _together(item: pytest.Item, mark: pytest.Mark) -> str:
    """What the tests of the same part have in common: their file, or of a test that stands alone its own name."""
    return item.nodeid if mark.kwargs.get("apart", False) else str(item.path)
