"""The AWS half of the picture: the VPC with its zones and node groups, identities, and keys."""

from __future__ import annotations

from collections.abc import Sequence

from infra.preview.graph.architecture import Architecture, Group, Zone
from infra.preview.graph.sheet import FAINT, Sheet, fitted, text_width

_VPC, _PUBLIC, _PRIVATE = "#f4f7fa", "#e4edf5", "#eef5ee"
_CONTROL, _SYSTEM, _GPU = "#dbe4f3", "#d3dae0", "#bfe3c0"
_IDENTITY, _KEY = "#eadff2", "#f3e3dd"

ZONES_LEFT, ZONES_WIDTH = 5.0, 96.0
SIDE_LEFT, SIDE_WIDTH = 110.0, 48.0
_GROUPS_TOP, _GROUPS_MARGIN = 54.5, 5.5
_LOWEST_GROUP, _HIGHEST_GROUP = 9.5, 13.5
"""Heights of the row of a node group, with the space under it."""

_BOTTOM = 9.0
_IDENTITIES_TOP = 91.5
_LOWEST_LINE, _HIGHEST_LINE = 2.2, 3.2
"""Heights of the line of a service account."""

_KEYS_HEIGHT, _IDENTITIES_FRAME = 10.0, 5.5


def bottom_of(facts: Architecture) -> float:
    """Lower edge of this half, which many node groups or service accounts move down."""
    groups = _GROUPS_TOP - len(_rows(facts.groups)) * _LOWEST_GROUP - _GROUPS_MARGIN
    lines = sum(len(workload.accounts) for workload in facts.workloads) * _LOWEST_LINE
    return min(_BOTTOM, groups, _IDENTITIES_TOP - _IDENTITIES_FRAME - lines - _KEYS_HEIGHT)


def draw_network(sheet: Sheet, facts: Architecture) -> None:
    """The VPC with a column per zone; every node group is a bar across its zones."""
    bottom, top = bottom_of(facts), 89.5
    sheet.box(3, bottom, ZONES_WIDTH + 4, top - bottom, fill=_VPC)
    sheet.text(5, top - 1.3, facts.vpc, size=9, bold=True)
    if facts.endpoints:
        endpoints = f"endpoints inside: {', '.join(facts.endpoints)}"
        sheet.text(3 + ZONES_WIDTH + 2, top - 1.3, endpoints, size=7.5, color=FAINT, align="right")
    _control_plane(sheet, facts, y=72.5)
    width = ZONES_WIDTH / len(facts.zones)
    for index, zone in enumerate(facts.zones):
        left = ZONES_LEFT + index * width
        _public_subnet(sheet, zone, left, width)
        sheet.box(left + 0.6, bottom + 1.5, width - 1.2, 57.0 - bottom, fill=_PRIVATE)
        sheet.text(left + 2, 57.7, f"private {zone.private_cidr}", size=7.5, color=FAINT)
        if zone.has_mount_target:
            sheet.text(left + 2, bottom + 4, "EFS mount target", size=7.5, color=FAINT)
    _groups(sheet, facts.groups, zone_width=width, bottom=bottom + _GROUPS_MARGIN)


def _public_subnet(sheet: Sheet, zone: Zone, left: float, width: float) -> None:
    """The public subnet of a zone; in an existing VPC the name of the zone, and what the stack uses there."""
    sheet.box(left + 0.6, 60.5, width - 1.2, 9.5, fill=_PUBLIC)
    sheet.text(left + 2, 69.2, zone.name, size=9, bold=True)
    if zone.public_cidr:
        sheet.text(left + 2, 66.4, f"public {zone.public_cidr}", size=7.5, color=FAINT)
        sheet.text(left + 2, 63.8, "NAT gateway" if zone.has_nat else "no NAT of its own", size=7.5)
    else:
        sheet.text(left + 2, 66.4, "routes and gateways of the VPC", size=7.5, color=FAINT)


def _control_plane(sheet: Sheet, facts: Architecture, *, y: float) -> None:
    sheet.box(ZONES_LEFT + 0.6, y, ZONES_WIDTH - 1.2, 11.5, fill=_CONTROL)
    sheet.text(ZONES_LEFT + 2.5, y + 10.3, "EKS control plane", size=10, bold=True)
    sheet.text(ZONES_LEFT + 2.5, y + 7.2, facts.control_plane, size=8)
    sheet.text(ZONES_LEFT + 2.5, y + 4.2, f"add-ons: {', '.join(facts.addons)}", size=7.5, color=FAINT)


def _rows(groups: Sequence[Group]) -> list[list[Group]]:
    """A row per group; groups without a common zone share a row."""
    rows: list[list[Group]] = []
    for group in groups:
        fitting = [row for row in rows if not any(set(group.zones) & set(other.zones) for other in row)]
        if fitting:
            fitting[0].append(group)
        else:
            rows.append([group])
    return rows


def _groups(sheet: Sheet, groups: Sequence[Group], *, zone_width: float, bottom: float) -> None:
    rows = _rows(groups)
    pitch = min((_GROUPS_TOP - bottom) / max(len(rows), 1), _HIGHEST_GROUP)
    for index, row in enumerate(rows):
        y = _GROUPS_TOP - (index + 1) * pitch
        for group in row:
            left = ZONES_LEFT + group.zones[0] * zone_width + 2
            width = (group.zones[-1] - group.zones[0] + 1) * zone_width - 4
            sheet.box(left, y, width, pitch - 1.5, fill=_GPU if group.has_gpus else _SYSTEM)
            middle = y + (pitch - 1.5) / 2
            beside = width - 4 - text_width(group.instance, size=8)
            sheet.text(left + 1.5, middle + 3.4, group.name, size=fitted(group.name, beside, size=9.5), bold=True)
            sheet.text(left + width - 1.5, middle + 3.2, group.instance, size=8, align="right")
            sheet.text(left + 1.5, middle + 0.5, group.machines, size=7.5, color=FAINT)
            sheet.text(left + 1.5, middle - 1.9, group.fabric, size=7.5, color=FAINT)


def draw_identities(sheet: Sheet, facts: Architecture) -> None:
    """A table in one box, whose pitch shrinks with the number of service accounts; the keys under it."""
    top, bottom = _IDENTITIES_TOP, bottom_of(facts)
    sheet.text(SIDE_LEFT, top, "Identities", size=11, bold=True)
    caption = "roles, and the service accounts that take them by Pod Identity"
    sheet.text(SIDE_LEFT + SIDE_WIDTH, top - 0.5, caption, size=7.5, color=FAINT, align="right")
    lines = sum(len(workload.accounts) for workload in facts.workloads)
    pitch = min((top - bottom - _KEYS_HEIGHT - _IDENTITIES_FRAME) / max(lines, 1), _HIGHEST_LINE)
    height = lines * pitch + 2
    sheet.box(SIDE_LEFT, top - 3.5 - height, SIDE_WIDTH, height, fill=_IDENTITY)
    y = top - 4.7
    for workload in facts.workloads:
        sheet.text(SIDE_LEFT + 1.5, y, workload.role, size=8, bold=True)
        for account in workload.accounts:
            sheet.text(SIDE_LEFT + 15, y, account, size=8)
            y -= pitch
    _draw_keys(sheet, facts.keys, bottom)


def _draw_keys(sheet: Sheet, keys: Sequence[str], bottom: float) -> None:
    sheet.box(SIDE_LEFT, bottom, SIDE_WIDTH, _KEYS_HEIGHT - 2, fill=_KEY)
    sheet.text(SIDE_LEFT + 1.5, bottom + _KEYS_HEIGHT - 3.2, "KMS keys", size=8.5, bold=True)
    sheet.text(SIDE_LEFT + 11, bottom + _KEYS_HEIGHT - 3.2, "one for each kind of data", size=7.5, color=FAINT)
    sheet.text(SIDE_LEFT + 1.5, bottom + _KEYS_HEIGHT - 5.8, ", ".join(keys), size=8)
