"""Progress of a job, from the lines that its driver prints without a terminal.

The driver of a run or a search writes a line of this form every two seconds in which something has changed
(`observability.screens.PlainScreen`, `observability.progress`, `tune.view`), and the submitter's pod repeats it in its log,
which is where a job's progress can be read without access to its files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

SUBMITTER_CONTAINER = "ray-job-submitter"
"""Container of the submitter pod, which prints the driver's log; KubeRay names it."""

TAIL_LINES = 50
"""Lines of a log among which one with progress is to be expected: notices and evaluations come between them."""

_GAP = "  "
_LINE = re.compile(r"(?P<unit>step|trial) +(?P<done>\d+)/(?P<total>\d+)  (?P<figures>.*)")
_LEFT = re.compile(r"(?:^|  )(?:about )?(?P<left>(?:at most )?[\d:]+) left$")


class Progress(NamedTuple):
    """Where a run or a search is.

    Attributes:
        done: steps done, or trials that have ended.
        total: steps of the run, or trials of the search.
        figures: loss, throughput, best result and so on, as printed.
        unit: `step` of a run, or `trial` of a search.
    """

    done: int
    total: int
    figures: str
    unit: str = "step"

    @property
    def left(self) -> str:
        """The driver's estimate of the remaining time, e.g. `12:30` or `at most 12:30`; empty if it printed none."""
        found = _LEFT.search(self.figures)
        return found["left"] if found else ""

    def __str__(self) -> str:
        """`step 40/120`; of a search with its figures: `9/16 trials, 4 running, best validation loss 0.1234 (t002, epoch 3)`."""
        if self.unit == "step":
            return f"step {self.done}/{self.total}"
        figures = _LEFT.sub("", self.figures).split(_GAP)
        return ", ".join([f"{self.done}/{self.total} {self.unit}s", *filter(None, figures)])


def read_progress_line(line: str) -> Progress | None:
    """The progress in a line of the driver; None if the line has none."""
    found = _LINE.fullmatch(line)
    return Progress(int(found["done"]), int(found["total"]), found["figures"], found["unit"]) if found else None


def newest_progress(lines: Iterable[str]) -> Progress | None:
    """The progress in the last line that has any."""
    found = None
    for line in lines:
        found = read_progress_line(line) or found
    return found
