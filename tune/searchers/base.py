"""What every searcher does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Protocol

from training.config.schema import OptionValue
from tune.history import TrialHistory


class Searcher(Protocol):
    """Chooses the values of the next trial.

    It keeps nothing between two calls: its choice depends on the settings of the search and on the trials so far alone. So a search that
    is continued chooses what it would have chosen had it not been interrupted, given the same results.
    """

    def suggest(self, trials: Sequence[TrialHistory]) -> dict[str, OptionValue] | None:
        """The values of the next trial.

        Args:
            trials: all trials so far in the order they were added, those that have not ended among them.

        Returns:
            The values of the axes that apply, or None if no others are left to try.
        """
        ...


def first_untried(
    draws: Iterable[dict[str, OptionValue]], trials: Iterable[TrialHistory]
) -> dict[str, OptionValue] | None:
    """The first draw that no trial has begun with; equal settings train equal weights, so trying them again would tell nothing."""
    tried = {_text(dict(trial.first_values)) for trial in trials}
    return next((values for values in draws if _text(values) not in tried), None)


def _text(values: dict[str, OptionValue]) -> str:
    return json.dumps(values, sort_keys=True)
