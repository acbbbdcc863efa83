"""Threads that call Ray while the driver leaves the cluster; test_ray_group.py has the loop of a real group."""

from __future__ import annotations

import threading

import pytest

from tests.training.launch.agent.group import eventually
from training.launch.loop_gate import GateClosedError, LoopGate


def test_an_open_gate_lets_threads_in_again_and_again_and_a_closed_one_none() -> None:
    gate = LoopGate()
    for _ in range(2):
        with gate.passing(), gate.passing():
            pass
    with pytest.raises(ValueError, match="of the call"), gate.passing():
        raise ValueError("of the call")
    assert gate.close(seconds=0), "a thread that has failed inside has left"
    with pytest.raises(GateClosedError), gate.passing():
        pytest.fail("the gate is closed")


def test_closing_waits_for_the_threads_inside_and_says_if_one_stays() -> None:
    gate, entered, may_leave, closed = LoopGate(), threading.Event(), threading.Event(), list[bool]()

    def call() -> None:
        with gate.passing():
            entered.set()
            may_leave.wait()

    threading.Thread(target=call, daemon=True).start()
    assert entered.wait(20)
    assert not gate.close(seconds=0.05)
    with pytest.raises(GateClosedError), gate.passing():
        pytest.fail("the gate is closed")
    closing = threading.Thread(target=lambda: closed.append(gate.close(seconds=20)), daemon=True)
    closing.start()
    assert not eventually(lambda: bool(closed), seconds=0.1)
    may_leave.set()
    closing.join(20)
    assert closed == [True]
