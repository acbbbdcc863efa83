"""Tells the lines of a driver from those that Ray's command line adds to the log of the submitter's pod.

The pod runs `ray job submit` and `ray job logs --follow` (KubeRay's ray-operator/controllers/ray/common/job.go, v1.6.2). They print hints
for their user, who is a pod, and in the end how the job ended, which the job's state says in fewer words: of a failed job the last 20,000
characters once more, and of one whose head has gone, as after each stop and preemption, a traceback of 80 lines.
"""

from __future__ import annotations

import re

_OWN = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\t(?P<level>[A-Z]+) (?:cli|sdk)\.py:\d+ -- (?P<text>.*)")
"""A line of Ray's command line (ray/autoscaler/_private/cli_logger.py, Ray 2.60)."""

_HINTS = frozenset({"INFO", "SUCC"})
"""Levels that are never worth showing. A warning or an error without a driver says why there is none."""

_CLOSED = ("WebSocket closed for job ", "WebSocket error for job ")
"""The connection to the driver's log has ended (ray/dashboard/modules/job/sdk.py, Ray 2.60)."""

_LAST_WORDS = ("Traceback (most recent call last):", "Status message: ")
"""What the command line prints after that, to the end of its log."""


class SubmitterLog:
    """The lines of one pod."""

    def __init__(self) -> None:
        self._is_closed = False
        self._has_ended = False

    def is_shown(self, line: str) -> bool:
        """Whether the driver printed a line, or it says why there is no driver.

        Args:
            line: the next one. The last lines of the driver, on standard output, may come after the first ones on standard error that
                say that its log is closed.
        """
        own = _OWN.match(line)
        if own is None:
            self._has_ended |= self._is_closed and line.startswith(_LAST_WORDS)
            return not self._has_ended
        self._is_closed |= own["text"].startswith(_CLOSED)
        return not self._is_closed and own["level"] not in _HINTS
