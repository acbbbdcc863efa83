"""Policy: which checkpoint is validated next when validations take longer than the epochs between them."""

from __future__ import annotations


class ValidationQueue:
    """At most one step is being validated, and at most one waits: the newest.

    Attributes:
        running: step that is being validated; None if none is.
        waiting: step that is next; None if none is.
    """

    def __init__(self) -> None:
        self.running: int | None = None
        self.waiting: int | None = None

    def add(self, step: int) -> int | None:
        """Add a step; returns the one that it replaces and that will not be validated, if any."""
        if self.running is None:
            self.running = step
            return None
        replaced, self.waiting = self.waiting, step
        return replaced

    def finish(self) -> int | None:
        """The running step has ended; returns the next one, which is running now."""
        self.running, self.waiting = self.waiting, None
        return self.running

    def clear(self) -> list[int]:
        """Forget all steps; returns them, oldest first."""
        steps = [step for step in (self.running, self.waiting) if step is not None]
        self.running = self.waiting = None
        return steps
