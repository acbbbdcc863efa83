"""Renders figures, plots and tables into `report.html`."""

from __future__ import annotations

from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from observability.history import RunHistory, state_of
from observability.quantities import duration, money, percent
from observability.report import facts
from observability.report.plots import draw_plots
from observability.report.profile import profile_section
from observability.runlog import FILE_NAME, read_all

REPORT_FILE = "report.html"


def write_report(run_directory: Path, *, is_running: bool = False) -> Path:
    """Write the report of a run from its event log; the run may still be going.

    Args:
        run_directory: the run's directory.
        is_running: whether a driver goes on with the run; the one that writes its last report does not.

    Returns:
        Path of `report.html` in the run directory, which is replaced atomically.

    Raises:
        FileNotFoundError: the directory contains no event log.
    """
    if not (run_directory / FILE_NAME).exists():
        raise FileNotFoundError(f"{run_directory} is not a run directory: it contains no {FILE_NAME}")
    html = render(RunHistory.from_events(read_all(run_directory)), run_directory, is_running=is_running)
    return write_page(run_directory, html)


def render(history: RunHistory, run_directory: Path, *, is_running: bool) -> str:
    """Render the page as HTML."""
    return template("report.html.j2").render(
        name=history.name,
        status=state_of(history.ended, is_running=is_running),
        message=history.ended.message if history.ended else "",
        headline=facts.headline_figures(history),
        run=facts.run_rows(history, run_directory),
        evaluation_headings=facts.evaluation_headings(history),
        evaluations=facts.evaluation_rows(history),
        goodput=facts.goodput_shares(history.goodput),
        goodput_ratio=history.goodput.ratio,
        wall_seconds=history.goodput.wall_seconds,
        cost=history.goodput.cost,
        shares=facts.time_shares(history) if history.steps else [],
        plots=draw_plots(history),
        profile=profile_section(run_directory),
        checkpoints=facts.checkpoint_rows(history),
        checkpoint_count=len(history.checkpoints),
        notices=history.notices,
        settings=facts.flat_rows(history.resumed.settings) if history.resumed else [],
        environment=facts.flat_rows(history.resumed.environment) if history.resumed else [],
    )


def template(name: str, *packages: str) -> Template:
    """A template of these packages, which can include those of this one, e.g. `style.css.j2`."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, ".") for package in (*packages, "observability.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Plots are our own SVG; all other text comes from the run and is escaped.
    environment.filters["svg"] = Markup
    environment.filters["duration"] = duration
    environment.filters["percent"] = percent
    environment.filters["money"] = money
    return environment.get_template(name)


def write_page(directory: Path, html: str) -> Path:
    """Write `report.html` in a folder, or replace it atomically; returns its path."""
    path = directory / REPORT_FILE
    partial = path.with_suffix(".html.partial")
    partial.write_text(html, encoding="utf-8")
    partial.replace(path)
    return path
