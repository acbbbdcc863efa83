"""A log read over connections that break: every line once, in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from training.cluster.driver_log import LogCursor

Line = tuple[int, str]
LINES = st.lists(st.tuples(st.integers(0, 9_999_999), st.sampled_from(["step", "loss", ""])), max_size=30).map(
    lambda lines: sorted(lines, key=lambda line: line[0])
)
"""Lines by their time in microseconds, several in a second and some equal."""


def stamped(line: Line) -> str:
    """The line as the kubelet sends it."""
    micros, text = line
    return f"2026-11-21T08:00:{micros // 1_000_000:02d}.{micros % 1_000_000:06d}000Z {text}"


def served(log: list[str], since: str | None) -> list[str]:
    """The lines of a new connection: those since `since`, a whole second."""
    return log if since is None else [line for line in log if line[:19] >= since[:19]]


@given(lines=LINES, breaks=st.lists(st.integers(0, 30), max_size=4))
def test_every_line_comes_once_however_often_the_connection_breaks(lines: list[Line], breaks: list[int]) -> None:
    log, cursor, got = [stamped(line) for line in lines], LogCursor(), list[str]()
    for length in [*breaks, len(log)]:
        cursor.reconnect()
        taken = (cursor.take(line) for line in served(log, cursor.since)[:length])
        got += [text for text in taken if text is not None]
    assert got == [text for _, text in lines]


def test_two_equal_lines_with_equal_times_are_both_kept() -> None:
    cursor = LogCursor()
    assert [cursor.take(stamped((1, "step"))), cursor.take(stamped((1, "step")))] == ["step", "step"]
