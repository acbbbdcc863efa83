"""Puts figures, plots and tables together into `report.html`."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from observability.history import RunHistory
from observability.report import facts
from observability.report.plots import plots
from observability.runlog import FILE_NAME, read_all

REPORT_FILE = "report.html"


def write_report(run_directory: Path) -> Path:
    """Write the report of a run from its log; of a run that is still going, as far as it is.

    Returns:
        The page's path, `report.html` in the run's folder. It is exchanged in one piece: a reader never sees half of it.

    Raises:
        FileNotFoundError: the folder holds no log of a run.
    """
    if not (run_directory / FILE_NAME).exists():
        raise FileNotFoundError(f"{run_directory} is not the folder of a run: it holds no {FILE_NAME}")
    text = render(RunHistory.of(read_all(run_directory)), run_directory)
    path = run_directory / REPORT_FILE
    partial = path.with_suffix(".html.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
    return path


def render(history: RunHistory, run_directory: Path) -> str:
    """The page's HTML."""
    environment = Environment(
        loader=PackageLoader("observability.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # The drawings are our own SVG, not text of the run's; everything else is escaped.
    environment.filters["drawing"] = Markup
    return environment.get_template("report.html.j2").render(
        name=history.name,
        status=history.status,
        message=history.ended.message if history.ended else "",
        headline=facts.headline_figures(history),
        run=facts.run_rows(history, run_directory),
        evaluations=facts.evaluation_rows(history),
        shares=facts.time_shares(history) if history.steps else [],
        plots=plots(history),
        checkpoints=facts.checkpoint_rows(history),
        checkpoint_count=len(history.checkpoints),
        notices=history.notices,
        settings=facts.flat_rows(history.resumed.settings) if history.resumed else [],
        environment=facts.flat_rows(history.resumed.environment) if history.resumed else [],
    )
