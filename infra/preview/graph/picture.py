"""The architecture of an environment as a picture, drawn from its recording."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from infra.preview.graph.architecture import Architecture, Group, Store, Workload, Zone, architecture_of
from infra.preview.recording import Recording
from infra.spec.catalog import load_catalog
from infra.spec.settings import StackSettings

_INK = "#1f2933"
_FAINT = "#667784"
_PAPER = "#ffffff"
_VPC, _PUBLIC, _PRIVATE = "#f4f7fa", "#e4edf5", "#eef5ee"
_CONTROL, _SYSTEM, _GPU = "#dbe4f3", "#d3dae0", "#bfe3c0"
_STORE, _IDENTITY, _KEY = "#fdeecb", "#eadff2", "#f3e3dd"
_LINE, _GUARD = "#9fb0be", "#b3541e"

_WIDTH, _HEIGHT = 160.0, 100.0
"""Size of the drawing in units of 0.1 inch."""

_ZONES_LEFT, _ZONES_WIDTH = 5.0, 96.0
_SIDE_LEFT, _SIDE_WIDTH = 110.0, 48.0


def draw(settings: StackSettings, recording: Recording, file: Path) -> None:
    """Draw an environment.

    Args:
        settings: the environment.
        recording: the environment's graph.
        file: output file; the suffix sets the format, e.g. .svg or .png.
    """
    figure = Figure(figsize=(_WIDTH / 10, _HEIGHT / 10), facecolor=_PAPER)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, _WIDTH)
    axes.set_ylim(0, _HEIGHT)
    axes.axis("off")
    facts = architecture_of(settings, recording, load_catalog())
    sheet = _Sheet(axes)
    _heading(sheet, settings, facts)
    _network(sheet, facts)
    _stores(sheet, facts.stores)
    _identities(sheet, facts.workloads)
    _footer(sheet, facts)
    # No date and a fixed salt for IDs, so that an unchanged stack gives an identical file.
    with rc_context({"svg.hashsalt": facts.cluster}):
        figure.savefig(file, dpi=150, metadata={"Date": None} if file.suffix == ".svg" else None)


class _Sheet:
    """Draws boxes and text, in the drawing's units."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes

    def box(
        self, x: float, y: float, width: float, height: float, *, fill: str, edge: str = _LINE, line: float = 1.0
    ) -> None:
        """A rounded box from its lower left corner."""
        style = "round,pad=0,rounding_size=1"
        patch = FancyBboxPatch((x, y), width, height, boxstyle=style, facecolor=fill, edgecolor=edge, linewidth=line)
        self._axes.add_patch(patch)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 8,
        bold: bool = False,
        color: str = _INK,
        align: str = "left",
    ) -> None:
        """Text with its upper edge at y."""
        weight = "bold" if bold else "normal"
        self._axes.text(x, y, text, fontsize=size, fontweight=weight, color=color, ha=align, va="top", linespacing=1.35)


def _heading(sheet: _Sheet, settings: StackSettings, facts: Architecture) -> None:
    environment = settings.environment
    sheet.text(3, 97.5, facts.cluster, size=17, bold=True)
    line = f"{environment.kind.value} environment in {settings.aws.region}, owner {environment.owner}"
    sheet.text(3, 93.2, line, size=9, color=_FAINT)


def _network(sheet: _Sheet, facts: Architecture) -> None:
    """The VPC with a column per zone; every node group is a bar across its zones."""
    bottom, top = 9.0, 89.5
    sheet.box(3, bottom, _ZONES_WIDTH + 4, top - bottom, fill=_VPC)
    sheet.text(5, top - 1.3, facts.vpc, size=9, bold=True)
    if facts.endpoints:
        endpoints = f"endpoints inside: {', '.join(facts.endpoints)}"
        sheet.text(3 + _ZONES_WIDTH + 2, top - 1.3, endpoints, size=7.5, color=_FAINT, align="right")
    _control_plane(sheet, facts, y=72.5)
    width = _ZONES_WIDTH / len(facts.zones)
    for index, zone in enumerate(facts.zones):
        left = _ZONES_LEFT + index * width
        _public_subnet(sheet, zone, left, width)
        sheet.box(left + 0.6, bottom + 1.5, width - 1.2, 48.0, fill=_PRIVATE)
        sheet.text(left + 2, 57.7, f"private {zone.private_cidr}", size=7.5, color=_FAINT)
        if zone.has_mount_target:
            sheet.text(left + 2, bottom + 4, "EFS mount target", size=7.5, color=_FAINT)
    _groups(sheet, facts.groups, zone_width=width, top=54.5, bottom=bottom + 5.5)


def _public_subnet(sheet: _Sheet, zone: Zone, left: float, width: float) -> None:
    """The public subnet of a zone; in an existing VPC the name of the zone, and what the stack uses there."""
    sheet.box(left + 0.6, 60.5, width - 1.2, 9.5, fill=_PUBLIC)
    sheet.text(left + 2, 69.2, zone.name, size=9, bold=True)
    if zone.public_cidr:
        sheet.text(left + 2, 66.4, f"public {zone.public_cidr}", size=7.5, color=_FAINT)
        sheet.text(left + 2, 63.8, "NAT gateway" if zone.has_nat else "no NAT of its own", size=7.5)
    else:
        sheet.text(left + 2, 66.4, "routes and gateways of the VPC", size=7.5, color=_FAINT)


def _control_plane(sheet: _Sheet, facts: Architecture, *, y: float) -> None:
    sheet.box(_ZONES_LEFT + 0.6, y, _ZONES_WIDTH - 1.2, 11.5, fill=_CONTROL)
    sheet.text(_ZONES_LEFT + 2.5, y + 10.3, "EKS control plane", size=10, bold=True)
    sheet.text(_ZONES_LEFT + 2.5, y + 7.2, facts.control_plane, size=8)
    sheet.text(_ZONES_LEFT + 2.5, y + 4.2, f"add-ons: {', '.join(facts.addons)}", size=7.5, color=_FAINT)


def _groups(sheet: _Sheet, groups: Sequence[Group], *, zone_width: float, top: float, bottom: float) -> None:
    """A row per group; groups without a common zone share a row."""
    rows: list[list[Group]] = []
    for group in groups:
        fitting = [row for row in rows if not any(set(group.zones) & set(other.zones) for other in row)]
        if fitting:
            fitting[0].append(group)
        else:
            rows.append([group])
    pitch = min((top - bottom) / max(len(rows), 1), 13.5)
    for index, row in enumerate(rows):
        y = top - (index + 1) * pitch
        for group in row:
            left = _ZONES_LEFT + group.zones[0] * zone_width + 2
            width = (group.zones[-1] - group.zones[0] + 1) * zone_width - 4
            sheet.box(left, y, width, pitch - 1.5, fill=_GPU if group.has_gpus else _SYSTEM)
            middle = y + (pitch - 1.5) / 2
            sheet.text(left + 1.5, middle + 3.4, group.name, size=9.5, bold=True)
            sheet.text(left + width - 1.5, middle + 3.2, group.instance, size=8, align="right")
            sheet.text(left + 1.5, middle + 0.5, group.machines, size=7.5, color=_FAINT)
            sheet.text(left + 1.5, middle - 1.9, group.fabric, size=7.5, color=_FAINT)


def _stores(sheet: _Sheet, stores: Sequence[Store]) -> None:
    sheet.text(_SIDE_LEFT, 91.5, "State", size=11, bold=True)
    sheet.text(_SIDE_LEFT + _SIDE_WIDTH, 91, "framed: protected from deletion", size=7.5, color=_GUARD, align="right")
    y = 88.5
    for store in stores:
        height = 4.0 + 2.2 * store.facts.count("\n")
        y -= height + 0.9
        edge, line = (_GUARD, 1.8) if store.is_protected else (_LINE, 1.0)
        sheet.box(_SIDE_LEFT, y, _SIDE_WIDTH, height, fill=_STORE, edge=edge, line=line)
        sheet.text(_SIDE_LEFT + 1.5, y + height - 1.1, store.service, size=8.5, bold=True)
        sheet.text(_SIDE_LEFT + 8, y + height - 1.1, store.name, size=8.5)
        sheet.text(_SIDE_LEFT + _SIDE_WIDTH - 1.5, y + height - 1.2, store.facts, size=7.5, color=_FAINT, align="right")


def _identities(sheet: _Sheet, workloads: Sequence[Workload]) -> None:
    """A table in one box, whose pitch shrinks with the number of service accounts."""
    top, bottom = 48.5, 9.0
    sheet.text(_SIDE_LEFT, top, "Identities", size=11, bold=True)
    caption = "roles, and the service accounts that take them by Pod Identity"
    sheet.text(_SIDE_LEFT + _SIDE_WIDTH, top - 0.5, caption, size=7.5, color=_FAINT, align="right")
    lines = sum(len(workload.accounts) for workload in workloads)
    pitch = min((top - bottom - 5.5) / max(lines, 1), 3.2)
    height = lines * pitch + 2
    sheet.box(_SIDE_LEFT, top - 3.5 - height, _SIDE_WIDTH, height, fill=_IDENTITY)
    y = top - 4.7
    for workload in workloads:
        sheet.text(_SIDE_LEFT + 1.5, y, workload.role, size=8, bold=True)
        for account in workload.accounts:
            sheet.text(_SIDE_LEFT + 15, y, account, size=8)
            y -= pitch


def _footer(sheet: _Sheet, facts: Architecture) -> None:
    width = _SIDE_LEFT + _SIDE_WIDTH - 3
    sheet.box(3, 2.0, width, 4.6, fill=_KEY)
    sheet.text(5, 5.3, "KMS keys", size=8.5, bold=True)
    sheet.text(16, 5.3, f"one for each kind of data: {', '.join(facts.keys)}", size=8)
