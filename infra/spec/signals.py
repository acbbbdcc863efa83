"""Handlers of signals for the duration of a block."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a process: Ctrl-C, the cancellation of a CI job, a closed terminal. Only the first runs `finally` blocks."""


@contextmanager
def handling(numbers: Iterable[signal.Signals], handle: Callable[[signal.Signals], object]) -> Iterator[None]:
    """Call `handle` on these signals; in other threads than the main one, which cannot set handlers, nothing changes.

    A SIGHUP that is ignored, as under nohup, stays ignored.

    Args:
        numbers: the signals.
        handle: called with the signal, in the main thread; what it raises interrupts the block.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    handled = [one for one in numbers if not (is_nohup and one == signal.SIGHUP)]
    before = {one: signal.signal(one, lambda number, _frame: handle(signal.Signals(number))) for one in handled}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def interrupt(_number: signal.Signals) -> NoReturn:
    """A handler that raises what Ctrl-C raises.

    Raises:
        KeyboardInterrupt: always.
    """
    raise KeyboardInterrupt


@contextmanager
def interrupting(numbers: Iterable[signal.Signals]) -> Iterator[None]:
    """Raise on these signals what Ctrl-C raises: at once, and at the end of the block if that was lost.

    Python drops an exception that a handler raises while C code calls back, e.g. pydantic's serializer.

    Raises:
        KeyboardInterrupt: one of the signals came.
    """
    received: list[signal.Signals] = []

    def note_and_interrupt(number: signal.Signals) -> NoReturn:
        received.append(number)
        interrupt(number)

    with handling(numbers, note_and_interrupt):
        yield
        if received:
            raise KeyboardInterrupt


@contextmanager
def stopping(ask: Callable[[signal.Signals], object]) -> Iterator[None]:
    """Within the block, the first signal that ends a process asks it to save and stop; a second SIGINT or SIGTERM interrupts it.

    The shell and the kernel may both send SIGHUP when the terminal is closed, so only the first signal counts as one.

    Args:
        ask: called with the first signal.

    Raises:
        KeyboardInterrupt: a second signal came.
    """
    is_asked = False

    def answer(number: signal.Signals) -> None:
        nonlocal is_asked
        if not is_asked:
            is_asked = True
            ask(number)
        elif number != signal.SIGHUP:
            raise KeyboardInterrupt

    with handling(ENDINGS, answer):
        yield


def second_signal(number: signal.Signals) -> str:
    """What to say of a second signal after this first one: nothing where no terminal is left to send it from."""
    return "" if number == signal.SIGHUP else "; a second one stops immediately"
