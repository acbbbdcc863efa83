"""Runs `pulumi destroy` until the stack is empty: AWS often lets go of a resource only minutes after what used it is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

_ATTEMPTS = 3


@dataclass(frozen=True, kw_only=True)
class Destroying:
    """The last part of one `make down`.

    Attributes:
        destroy: runs `pulumi destroy`; returns pulumi's exit status.
        resources: number of resources in the stack's state.
        clear: deletes what is not in the state and blocks a deletion; returns how many resources it deleted.
        obstacles: what else blocks a deletion, a line each.
        say: prints a line.
    """

    destroy: Callable[[], int]
    resources: Callable[[], int]
    clear: Callable[[], int]
    obstacles: Callable[[], Iterable[str]]
    say: Callable[[str], None]

    def run(self) -> int:
        """Destroy the stack; another attempt follows a failed one if something has changed, or a blocker could be deleted.

        Returns:
            the exit status of the last attempt.
        """
        before = self.resources()
        status = self.destroy()
        for number in range(2, _ATTEMPTS + 1):
            if status == 0:
                break
            after, cleared = self.resources(), self.clear()
            for line in self.obstacles():
                self.say(line)
            # Missing permissions, for example, would only fail again.
            if after == before and not cleared:
                break
            found = f", and {cleared} others that blocked them are deleted" if cleared else ""
            self.say(f"{after} of {before} resources are left{found}; attempt {number} of {_ATTEMPTS}:")
            before, status = after, self.destroy()
        return status
