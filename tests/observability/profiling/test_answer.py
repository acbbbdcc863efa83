"""Answers to requests for a profile as lines of a driver's output."""

from __future__ import annotations

import io

import pytest

from observability.profiling.answer import AnswerLine, answer_lines, read_answer_line
from observability.progress import ProgressView
from observability.runlog import ProfileAnswered

ID = "4f1c2a9b"


@pytest.mark.parametrize(
    ("event", "lines"),
    [
        (
            ProfileAnswered(request=ID, state="recording", text="steps 122 to 131 of 8 ranks", step=122),
            [("recording", "steps 122 to 131 of 8 ranks")],
        ),
        (
            ProfileAnswered(request=ID, state="done", text="steps 1 to 2: data-bound\n  try first: x", folder="/run"),
            [("verdict", "steps 1 to 2: data-bound"), ("verdict", "  try first: x"), ("done", "/run")],
        ),
        (ProfileAnswered(request=ID, state="refused", text="no\nspace"), [("refused", "no space")]),
    ],
)
def test_what_the_driver_prints_is_read_back(event: ProfileAnswered, lines: list[tuple[str, str]]) -> None:
    stream = io.StringIO()
    ProgressView(stream, is_terminal=False).handle(event)
    assert stream.getvalue().splitlines() == answer_lines(event)
    assert [read_answer_line(line) for line in answer_lines(event)] == [AnswerLine(ID, *line) for line in lines]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "step 3/4  loss 1",
        "profile",
        f"profile {ID}",
        f"profile {ID} done",
        "profile first recording: x",
        f"a profile {ID} done: x",
    ],
)
def test_other_lines_answer_nothing(line: str) -> None:
    assert read_answer_line(line) is None
