"""The output of a followed job."""

from __future__ import annotations

import io

from training.cluster.queue_position import QueuePosition
from training.cluster.state import JobState
from training.cluster.view import JobView
from training.errors import ExitStatus


def shown(*states: JobState) -> list[str]:
    """The lines of a follower without a terminal, without their times."""
    stream = io.StringIO()
    view = JobView(stream, is_terminal=False)
    for state in states:
        view.state(state)
    return [line.partition("] ")[2] or line for line in stream.getvalue().splitlines()]


def test_a_state_is_shown_once_and_its_reason_whenever_it_changes() -> None:
    waiting = JobState(stage="queued", position=QueuePosition(in_team=2), reason="no quota")
    nearer = JobState(stage="queued", position=QueuePosition(in_team=1), reason="no quota")
    assert shown(waiting, waiting, nearer) == ["queued", "  position 2: no quota", "  position 1: no quota"]
    running, ending = JobState(stage="running"), JobState(stage="ending")
    done = JobState(stage="done", status=ExitStatus.DONE)
    assert shown(running, ending, done) == ["running", "the driver has ended", "done"]
    failed = JobState(stage="failed", reason="the driver exited with code 1", status=ExitStatus.FAILED)
    assert shown(running, failed) == ["running", "failed: the driver exited with code 1"]


def test_the_drivers_steps_move_a_bar_on_a_terminal_and_are_shown_verbatim_elsewhere() -> None:
    line = "step  5/10  loss 0.3"
    elsewhere, terminal = io.StringIO(), io.StringIO()
    JobView(elsewhere, is_terminal=False).log(line)
    assert elsewhere.getvalue() == f"{line}\n"
    view = JobView(terminal, is_terminal=True)
    view.log(line)
    view.tick()
    view.close()
    assert "5/10" in terminal.getvalue()
    assert "step  5/10" not in terminal.getvalue()
