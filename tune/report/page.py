"""Renders the tables and plots of a search into `report.html`."""

from __future__ import annotations

from pathlib import Path

from observability.report.facts import flat_rows
from observability.report.page import template, write_page
from tune.commands import BEST_FILE, train_command
from tune.events import FILE_NAME
from tune.history import SearchHistory
from tune.report import facts
from tune.report.data import SearchData
from tune.report.importance import importances
from tune.report.plots import draw_plots
from tune.texts import MetricTexts


def write_report(directory: Path, *, is_running: bool = False) -> Path:
    """Write the report of a search from its log; the search may still be going.

    Args:
        directory: the search's folder.
        is_running: whether a driver holds the folder's lock.

    Returns:
        Path of `report.html` in the folder, which is replaced atomically.

    Raises:
        FileNotFoundError: the folder contains no log of a search.
    """
    history = SearchHistory.read(directory)
    if not history.started:
        raise FileNotFoundError(f"{directory} is not the folder of a search: it contains no {FILE_NAME} with a start")
    data = SearchData(history=history, texts=MetricTexts(directory), is_running=is_running)
    return write_page(directory, render(data, directory))


def render(data: SearchData, directory: Path) -> str:
    """Render the page as HTML."""
    history = data.history
    start = history.started[-1]
    rated, rows = importances(data), facts.trial_rows(data)
    return template("search.html.j2", "tune.report").render(
        name=history.name,
        status=history.status(is_running=data.is_running),
        failure=history.ended.reason if history.ended and history.ended.status == "failed" else "",
        headline=facts.headline_figures(data),
        search=facts.search_rows(data, directory),
        space=facts.space_rows(data),
        best=facts.best_rows(data),
        best_by=data.metric.title if len(data.objectives) > 1 else "",
        has_schedule=bool(data.perturbed()),
        command=train_command(history, directory) if data.best else "",
        has_best_file=(directory / BEST_FILE).exists(),
        plots=draw_plots(data, rated),
        left_out="" if rated.by_setting else rated.note,
        trial_headings=facts.trial_headings(data),
        trials=rows,
        has_messages=any(row.message.text for row in rows),
        notices=facts.notice_rows(data),
        settings=flat_rows({key: value for key, value in start.settings.items() if key != "space"}),
        shared=flat_rows(start.shared),
        environment=flat_rows(start.environment),
    )
