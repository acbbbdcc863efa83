"""Signals interrupt a block, also where Python drops the exception of a handler."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from infra.spec.signals import handling, interrupting, stopping


class Dropping:
    """Its destructor gets a signal: what a handler raises there is reported as unraisable and dropped."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def interrupted(act: Callable[[], object], reached: list[str]) -> None:
    """A block in which something sends a signal; notes whether it reached its end."""
    with interrupting([signal.SIGTERM]):
        act()
        reached.append("end")


def test_a_signal_interrupts_a_block_at_once_and_the_handlers_of_before_are_back_after_it() -> None:
    reached: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(lambda: signal.raise_signal(signal.SIGTERM), reached)
    assert reached == []
    before = signal.getsignal(signal.SIGTERM)
    with interrupting([signal.SIGTERM]):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_whose_exception_is_dropped_interrupts_at_the_end_of_the_block() -> None:
    reached: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(Dropping, reached)
    assert reached == ["end"]


def test_a_closed_terminal_interrupts_a_block_unless_nohup_has_started_the_process() -> None:
    received: list[signal.Signals] = []
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with handling([signal.SIGHUP, signal.SIGTERM], received.append):
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert received == [signal.SIGTERM]


@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_interrupts(second: signal.Signals) -> None:
    asked: list[signal.Signals] = []

    def stopped() -> None:
        with stopping(asked.append):
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGHUP)  # from the shell; the first was from the kernel
            signal.raise_signal(second)

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert asked == [signal.SIGHUP]
