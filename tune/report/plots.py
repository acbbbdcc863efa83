"""The plots of a search, in page order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from observability.report.drawing import Plot
from tune.report.data import SearchData
from tune.report.importance import Importances
from tune.report.outcome_plots import best_so_far, cost, learning_curves, pareto
from tune.report.schedule_plots import lineage, schedules, survival
from tune.report.space_plots import importance, parallel_coordinates

_IMPORTANCE = "importance"

_MAKERS: Mapping[str, Callable[[SearchData], Plot | None] | None] = {
    "best": best_so_far,
    "pareto": pareto,
    "curves": learning_curves,
    "parallel": parallel_coordinates,
    "lineage": lineage,
    "schedules": schedules,
    _IMPORTANCE: None,
    "survival": survival,
    "cost": cost,
}

PLOTS: Final = tuple(_MAKERS)
"""Keys of the plots."""


def draw_plots(data: SearchData, importances: Importances) -> list[Plot]:
    """The plots for which the search has data."""
    return [plot for key in PLOTS if (plot := _draw(key, data, importances)) is not None]


def draw_plot(key: str, data: SearchData, importances: Importances) -> Plot:
    """The plot with this key; one that does not apply to the search has a note in place of a drawing."""
    plot = _draw(key, data, importances)
    if plot is not None:
        return plot
    note = (
        importances.note
        if key == _IMPORTANCE
        else "This plot does not apply to the search, or there is no data for it yet."
    )
    return Plot(key=key, title="", svg="", note=note)


def _draw(key: str, data: SearchData, importances: Importances) -> Plot | None:
    maker = _MAKERS[key]
    return importance(data, importances) if maker is None else maker(data)
