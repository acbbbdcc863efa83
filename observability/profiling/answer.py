"""The answer to a request for a profile as lines of a driver's output, and back: whoever asked for one of a job reads only that.

    profile 4f1c2a9b recording: steps 122 to 131 of 8 ranks
    profile 4f1c2a9b | steps 122 to 131: data-bound: …
    profile 4f1c2a9b |   try first: …
    profile 4f1c2a9b done: /mnt/runs/first/profile/step-00000122

Every line names its request, because lines of other threads and processes come between them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from observability.runlog import ProfileAnswered

_LINE = re.compile(r"profile (?P<request>[0-9a-f]{8}) (?:(?P<state>recording|refused|done): |\| )(?P<text>.*)")


class AnswerLine(NamedTuple):
    """A line of an answer.

    Attributes:
        request: ID of the request.
        state: `recording`, `refused` or `done`; `verdict` of a line of the verdict, which come before `done`.
        text: which steps, the reason, the folder of the profile, or a line of the verdict.
    """

    request: str
    state: str
    text: str


def answer_lines(event: ProfileAnswered) -> list[str]:
    """The lines of an answer."""
    head = f"profile {event.request}"
    if event.state == "done":
        return [*(f"{head} | {line}" for line in event.text.splitlines()), f"{head} done: {event.folder}"]
    return [f"{head} {event.state}: {' '.join(event.text.split())}"]


def read_answer_line(line: str) -> AnswerLine | None:
    """What a line of the driver answers; None of any other line."""
    found = _LINE.fullmatch(line)
    return None if found is None else AnswerLine(found["request"], found["state"] or "verdict", found["text"])
