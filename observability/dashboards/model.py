"""The types of dashboards. They say what is shown; `observability.dashboards.render` makes Grafana's JSON of them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

COLUMNS = 24
"""Width of Grafana's grid."""

TAG = "ray-train-platform"
"""Of every dashboard; they link to each other by it."""

DATA_SOURCE = "stack"
"""Variable of the data source: the Prometheus of one stack."""


TITLES: Mapping[str, str] = {
    "severity": "Severity",
    "alertname": "Alert",
    "alertstate": "State",
    "namespace": "Team",
    "training_job": "Job",
    "run": "Run",
    "node": "Node",
}
"""Titles of a table's columns for labels, in the order of the columns."""


class Unit(StrEnum):
    """Units by Grafana's names, which scale them: 90 seconds are shown as 1.5 min."""

    COUNT = "short"
    RATIO = "percentunit"
    PERCENT = "percent"
    SECONDS = "s"
    BYTES = "bytes"
    MEBIBYTES = "mbytes"
    BYTES_PER_SECOND = "binBps"
    PER_SECOND = "suffix: /s"
    CELSIUS = "celsius"
    WATTS = "watt"
    HERTZ = "hertz"
    FLOPS = "flops"
    DOLLARS = "currencyUSD"


class Chart(StrEnum):
    """Forms of a panel."""

    SERIES = "series"
    STACK = "stack"
    NUMBER = "number"
    BARS = "bars"
    TABLE = "table"


@dataclass(frozen=True, kw_only=True)
class Query:
    """One query.

    Attributes:
        expression: PromQL; `$name` is a variable of the dashboard or of Grafana.
        legend: name of a series, with labels as `{{label}}`; in a table the title of the query's column.
        unit: of a table's column; elsewhere the panel has the unit.
    """

    expression: str
    legend: str = ""
    unit: Unit | None = None


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The limit of an alert, drawn as a line, or as the colour of a number.

    Attributes:
        alert: its name.
        value: the alert's own constant, in the unit of the panel.
        is_lower: values below it are bad.
    """

    alert: str
    value: float
    is_lower: bool = False


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel.

    Attributes:
        title: unique in its dashboard; the panel's ID is made of it.
        description: what it means, and what good looks like.
        limits: of alerts about what it shows.
        alerts: other alerts about it, by name; the panel links to the runbooks of all.
        minimum: lower end of the axis; None for that of the data.
        maximum: upper end of the axis; None for that of the data.
        opens: uid of the dashboard that a click on a series or row opens, for its team, job and run.
    """

    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    chart: Chart = Chart.SERIES
    limits: tuple[Limit, ...] = ()
    alerts: tuple[str, ...] = ()
    minimum: float | None = 0
    maximum: float | None = None
    opens: str = ""
    width: int = 8
    height: int = 8

    @property
    def id(self) -> int:
        """Stays the same when other panels come and go, so that links to the panel stay valid."""
        return stable_id(self.title)

    @property
    def all_alerts(self) -> tuple[str, ...]:
        """Names of the alerts about it, those with limits first."""
        return tuple(dict.fromkeys((*(limit.alert for limit in self.limits), *self.alerts)))


@dataclass(frozen=True, kw_only=True)
class TextPanel:
    """A panel with Markdown."""

    title: str
    text: str
    width: int = COLUMNS
    height: int = 8

    @property
    def id(self) -> int:
        """Made of the title, as a panel's."""
        return stable_id(self.title)


@dataclass(frozen=True, kw_only=True)
class Row:
    """Panels under a title, placed from left to right."""

    title: str
    panels: tuple[Panel | TextPanel, ...]


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A choice at the top of a dashboard: the values of a label.

    Attributes:
        name: the choice is `$name` in queries, a regular expression.
        selector: series that have the label; it may use earlier variables.
        allows_all: several values, or all of them, can be chosen; otherwise it is one.
    """

    name: str
    title: str
    selector: str
    label: str
    allows_all: bool = True


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """One dashboard.

    Attributes:
        uid: in its address and its file name; never changes.
        description: the questions that it answers.
        since: how far back it looks at first, e.g. 3h.
    """

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = ()
    since: str = "3h"

    @property
    def panels(self) -> Iterator[Panel]:
        """All panels with queries."""
        return (panel for row in self.rows for panel in row.panels if isinstance(panel, Panel))


def stable_id(title: str) -> int:
    """A number for a title that fits into 31 bits, as Grafana expects of IDs."""
    return zlib.crc32(title.encode()) >> 1 or 1
