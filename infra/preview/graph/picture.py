"""The architecture of an environment as a picture, drawn from its recording: AWS above, the cluster below."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from infra.preview.graph import aws_picture
from infra.preview.graph.architecture import Architecture, architecture_of
from infra.preview.graph.cluster_picture import ClusterPicture
from infra.preview.graph.sheet import FAINT, PAPER, UNITS_PER_INCH, Sheet
from infra.preview.recording import Recording
from infra.spec.catalog import load_catalog
from infra.spec.settings import StackSettings

_WIDTH, _TOP = 160.0, 100.0
"""Width of the drawing and its upper edge, in units of the sheet; the cluster's contents set the lower edge."""


def draw(settings: StackSettings, recording: Recording, file: Path) -> None:
    """Draw an environment.

    Args:
        settings: the environment.
        recording: the environment's graph.
        file: output file; the suffix sets the format, e.g. .svg or .png.
    """
    figure = figure_of(settings, recording)
    # No date and a fixed salt for IDs, so that an unchanged stack gives an identical file.
    with rc_context({"svg.hashsalt": settings.environment.name}):
        figure.savefig(file, dpi=150, metadata={"Date": None} if file.suffix == ".svg" else None)


def figure_of(settings: StackSettings, recording: Recording) -> Figure:
    """The picture of an environment."""
    facts = architecture_of(settings, recording, load_catalog())
    cluster = ClusterPicture(facts, top=aws_picture.bottom_of(facts) - 2)
    height = _TOP - cluster.bottom
    figure = Figure(figsize=(_WIDTH / UNITS_PER_INCH, height / UNITS_PER_INCH), facecolor=PAPER)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, _WIDTH)
    axes.set_ylim(cluster.bottom, _TOP)
    axes.axis("off")
    sheet = Sheet(axes)
    _heading(sheet, settings, facts)
    aws_picture.draw_network(sheet, facts)
    aws_picture.draw_identities(sheet, facts)
    cluster.draw(sheet)
    return figure


def _heading(sheet: Sheet, settings: StackSettings, facts: Architecture) -> None:
    environment = settings.environment
    sheet.text(3, 97.5, facts.cluster, size=17, bold=True)
    line = f"{environment.kind.value} environment in {settings.aws.region}, owner {environment.owner}"
    sheet.text(3, 93.2, line, size=9, color=FAINT)
