"""Ends a search of Ray Tune for one of our reasons."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray.tune import Stopper

from tune.stopping import Ending


class SearchStopper(Stopper):
    """Asks again and again whether the search ends. No trial ends by it alone."""

    def __init__(self, ask: Callable[[], Ending | None]) -> None:
        """Args: `ask` is called after each event of Ray Tune, several times a second, until it returns an ending."""
        self._ask = ask
        self.ending: Ending | None = None
        """Why the search ends; None while it goes on."""

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether this trial ends."""
        del trial_id, result
        return False

    def stop_all(self) -> bool:
        """Whether all trials end."""
        if self.ending is None:
            self.ending = self._ask()
        return self.ending is not None

    def __reduce__(self) -> tuple[Any, ...]:
        # Ray Tune writes the stopper into its own snapshots, which we do not use.
        return SearchStopper, (_go_on,)


def _go_on() -> None:
    return None
