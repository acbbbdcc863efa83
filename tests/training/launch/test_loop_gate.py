"""Threads that call Ray while the driver leaves the cluster; test_ray_group.py has the loop of a real group."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.training.launch.agent.group import eventually
from training.launch.loop_gate import GateClosedError, LoopGate


class Caller:
    """A thread that is inside a gate until it may leave."""

    def __init__(self, gate: LoopGate) -> None:
        self._gate = gate
        self.entered = threading.Event()
        self.may_leave = threading.Event()
        threading.Thread(target=self._call, daemon=True).start()

    def _call(self) -> None:
        with self._gate.passing():
            self.entered.set()
            self.may_leave.wait()


@pytest.fixture
def gate() -> LoopGate:
    return LoopGate()


@pytest.fixture
def caller(gate: LoopGate) -> Iterator[Caller]:
    inside = Caller(gate)
    assert inside.entered.wait(20)
    yield inside
    inside.may_leave.set()


def test_an_open_gate_lets_threads_in_again_and_again_and_a_closed_one_none(gate: LoopGate) -> None:
    for _ in range(2):
        with gate.passing(), gate.passing():
            pass
    with pytest.raises(ValueError, match="of the call"), gate.passing():
        raise ValueError("of the call")
    assert gate.close(seconds=0), "a thread that has failed inside has left"
    with pytest.raises(GateClosedError), gate.passing():
        pytest.fail("the gate is closed")


def test_closing_waits_until_the_threads_inside_have_left(gate: LoopGate, caller: Caller) -> None:
    closed: list[bool] = []
    closing = threading.Thread(target=lambda: closed.append(gate.close(seconds=20)), daemon=True)
    closing.start()
    assert eventually(lambda: _is_closed(gate))
    assert not closed
    caller.may_leave.set()
    closing.join(20)
    assert closed == [True]


@pytest.mark.usefixtures("caller")
def test_closing_says_that_a_thread_is_still_inside(gate: LoopGate) -> None:
    assert not gate.close(seconds=0.05)
    assert _is_closed(gate)


def _is_closed(gate: LoopGate) -> bool:
    try:
        with gate.passing():
            return False
    except GateClosedError:
        return True
