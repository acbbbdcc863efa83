"""Makes the searcher that the settings name."""

from __future__ import annotations

from collections.abc import Mapping

from tune.searchers.base import Searcher
from tune.searchers.plain import GridSearcher, RandomSearcher
from tune.settings import SearchSettings
from tune.space.space import Space


def make_searcher(settings: SearchSettings, space: Space, objectives: Mapping[str, str]) -> Searcher:
    """The searcher of a search.

    Args:
        settings: the `search` section.
        space: its axes.
        objectives: the metrics to optimize with max or min, the most important first; not empty.
    """
    # A population may begin with equal values: it changes them as it trains.
    repeats = settings.is_population
    if settings.algorithm == "grid":
        return GridSearcher(space)
    if settings.algorithm == "random":
        return RandomSearcher(space, seed=settings.seed, repeats=repeats)
    from tune.searchers.tpe import TpeSearcher  # noqa: PLC0415 - brings Optuna and numpy

    return TpeSearcher(space, objectives, seed=settings.seed, repeats=repeats)
