"""Searchers that learn nothing from results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from training.config.schema import OptionValue
from tune.history import TrialHistory
from tune.searchers.base import first_untried
from tune.space.space import RandomDraw, Space

_ATTEMPTS = 200
"""Draws until one is new; one of 100 equally likely combinations that is left is missed with a probability of 13 %."""


class RandomSearcher:
    """Independent random values."""

    def __init__(self, space: Space, *, seed: int, repeats: bool = False) -> None:
        """Make the searcher.

        Args:
            space: the axes.
            seed: seed of the search.
            repeats: whether several trials may begin with equal values.
        """
        self._space = space
        self._seed = seed
        self._repeats = repeats

    def suggest(self, trials: Sequence[TrialHistory]) -> dict[str, OptionValue] | None:
        """Values that no trial has begun with; None if 200 draws give none."""
        return first_untried(self.draws(len(trials)), [] if self._repeats else trials)

    def draws(self, number: int) -> Iterator[dict[str, OptionValue]]:
        """The draws of a trial, by its number in the search."""
        for attempt in range(_ATTEMPTS):
            yield self._space.draw(RandomDraw(f"{self._seed}/{number}/{attempt}"))


class GridSearcher:
    """Every combination of the axes once, in order; the last axis varies fastest."""

    def __init__(self, space: Space) -> None:
        """`space` has only axes with a finite number of values."""
        self._space = space

    def suggest(self, trials: Sequence[TrialHistory]) -> dict[str, OptionValue] | None:
        """The first combination that no trial has begun with; None after the last."""
        return first_untried(self._space.grid(), trials)
