"""Something that is done again and again beside something else, as long as that takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from infra.spec.errors import PlatformError


@contextmanager
def repeating(action: Callable[[], None], *, seconds: float) -> Iterator[None]:
    """Repeat an action until the end of the context, which waits for the last one; the next may succeed where one fails.

    Args:
        action: what is done, in a thread of its own; may raise PlatformError.
        seconds: time before each.
    """
    is_over = Event()

    def repeat() -> None:
        while not is_over.wait(seconds):
            with suppress(PlatformError):
                action()

    thread = Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
