"""Answers to requests for a profile as lines of a driver's output."""

from __future__ import annotations

import io

from observability.profiling.answer import AnswerLine, answer_lines, read_answer_line
from observability.progress import ProgressView
from observability.runlog import ProfileAnswered

ID = "4f1c2a9b"


def test_what_the_driver_prints_is_read_back_and_other_lines_are_not() -> None:
    recording = ProfileAnswered(request=ID, state="recording", text="steps 122 to 131 of 8 ranks", step=122)
    text = "steps 1 to 2: data-bound\n  try first: x"
    done = ProfileAnswered(request=ID, state="done", text=text, folder="/run")
    cases: list[tuple[ProfileAnswered, list[tuple[str, str]]]] = [
        (recording, [("recording", "steps 122 to 131 of 8 ranks")]),
        (done, [("verdict", "steps 1 to 2: data-bound"), ("verdict", "  try first: x"), ("done", "/run")]),
        (ProfileAnswered(request=ID, state="refused", text="no\nspace"), [("refused", "no space")]),
    ]
    for event, lines in cases:
        stream = io.StringIO()
        ProgressView(stream, is_terminal=False).handle(event)
        assert stream.getvalue().splitlines() == answer_lines(event)
        assert [read_answer_line(line) for line in answer_lines(event)] == [AnswerLine(ID, *line) for line in lines]
    of_others = ["", "step 3/4  loss 1", "profile", "profile first recording: x", f"a profile {ID} done: x"]
    for line in (*of_others, f"profile {ID}", f"profile {ID} done"):
        assert read_answer_line(line) is None, line
