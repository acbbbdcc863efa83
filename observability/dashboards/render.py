"""Grafana's JSON of a dashboard, by way of the Grafana foundation SDK. No other module knows the SDK."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, prometheus, stat, table, text, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import text as text_models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from observability.alerts.catalog import ALERTS
from observability.alerts.model import Severity
from observability.dashboards.boards.runbooks import runbook_address
from observability.dashboards.layout import places
from observability.dashboards.model import (
    DATA_SOURCE,
    TAG,
    TITLES,
    Chart,
    Dashboard,
    Limit,
    Panel,
    Query,
    TextPanel,
    Unit,
    Variable,
)
from observability.promql.labels import Labels

_SOURCE = shapes.DataSourceRef(type_val="prometheus", uid=f"${{{DATA_SOURCE}}}")
_GOOD = "green"
_COLOURS: Mapping[Severity, str] = {Severity.PAGE: "red", Severity.TICKET: "orange", Severity.INFO: "yellow"}
_KEPT = f"${{{DATA_SOURCE}:queryparam}}&${{__url_time_range}}"
"""What a link to another dashboard keeps: data source and period."""

_LABELS = {"team": "namespace"}
"""Labels of results that name the value of a variable, where it is not the variable's own: a team's queue and namespace share a name."""

_Graph = timeseries.Panel | stat.Panel | bargauge.Panel | table.Panel


@dataclass(frozen=True)
class Context:
    """What links between dashboards depend on.

    Attributes:
        dashboards: by uid.
        labels: labels that all results of a panel have.
    """

    dashboards: Mapping[str, Dashboard]
    labels: Mapping[Panel, Labels]


def rendered(dashboard: Dashboard, context: Context) -> str:
    """The dashboard as Grafana reads it, with a stable order of keys."""
    builder = (
        builders.Dashboard(dashboard.title)
        .uid(dashboard.uid)
        .description(dashboard.description)
        .tags([TAG])
        .timezone("browser")
        .time(f"now-{dashboard.since}", "now")
        .refresh("1m")
        .readonly()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(_other_dashboards())
        .with_variable(builders.DatasourceVariable(DATA_SOURCE).label("Stack").type("prometheus"))
    )
    for variable in dashboard.variables:
        builder.with_variable(_variable(variable))
    for row in dashboard.rows:
        builder.with_row(builders.Row(row.title))
        for panel in row.panels:
            builder.with_panel(_text(panel) if isinstance(panel, TextPanel) else _panel(panel, dashboard, context))
    document = json.loads(JSONEncoder().encode(builder.build()))
    for made, place in zip(document["panels"], places(dashboard), strict=True):
        made["gridPos"] = {"x": place.left, "y": place.top, "w": place.width, "h": place.height}
    _compacted(document["panels"])
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _other_dashboards() -> builders.DashboardLink:
    return (
        builders.DashboardLink("Dashboards")
        .type(models.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(as_dropdown=True)
        .include_vars(include_vars=True)
        .keep_time(keep_time=True)
    )


def _variable(variable: Variable) -> builders.QueryVariable:
    definition = f"label_values({variable.selector}, {variable.label})"
    builder = (
        builders.QueryVariable(variable.name)
        .label(variable.title)
        .datasource(_SOURCE)
        .query({"query": definition, "refId": variable.name})
        .definition(definition)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )
    if not variable.allows_all:
        return builder
    everything = models.VariableOption(selected=True, text="All", value="$__all")
    return builder.multi(multi=True).include_all(include_all=True).all_value(".*").current(everything)


def _text(panel: TextPanel) -> text.Panel:
    return (
        text.Panel()
        .id(panel.id)
        .title(panel.title)
        .mode(text_models.TextMode.MARKDOWN)
        .content(panel.text)
        .span(panel.width)
        .height(panel.height)
    )


def _panel(panel: Panel, dashboard: Dashboard, context: Context) -> _Graph:
    builder = _BUILDERS[panel.chart](panel)
    builder.id(panel.id).title(panel.title).description(panel.description).datasource(_SOURCE).unit(panel.unit.value)
    builder.span(panel.width).height(panel.height).thresholds(_thresholds(panel.limits))
    builder.links([_runbook(name, dashboard) for name in panel.all_alerts])
    if panel.minimum is not None:
        builder.min(panel.minimum)
    if panel.maximum is not None:
        builder.max(panel.maximum)
    if panel.opens:
        builder.data_links([_opening(panel, dashboard, context)])
    is_instant = panel.chart in {Chart.TABLE, Chart.BARS}
    for letter, query in zip(ascii_uppercase, panel.queries, strict=False):
        builder.with_target(_target(query, letter, is_instant=is_instant, is_table=panel.chart is Chart.TABLE))
    return builder


def _target(query: Query, letter: str, *, is_instant: bool, is_table: bool) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expression).ref_id(letter).datasource(_SOURCE)
    if is_table:
        return target.format(PromQueryFormat.TABLE).instant()
    target.legend_format(query.legend or "__auto")
    return target.instant() if is_instant else target.range()


def _series(panel: Panel) -> timeseries.Panel:
    is_stacked = panel.chart is Chart.STACK
    style = shapes.GraphThresholdsStyleMode.DASHED if panel.limits else shapes.GraphThresholdsStyleMode.OFF
    stacking = shapes.StackingMode.NORMAL if is_stacked else shapes.StackingMode.NONE
    return (
        timeseries.Panel()
        .fill_opacity(60 if is_stacked else 0)
        .line_width(1)
        .show_points(shapes.VisibilityMode.NEVER)
        .stacking(common.StackingConfig().mode(stacking).group("A"))
        .thresholds_style(common.GraphThresholdsStyleConfig().mode(style))
        .legend(
            common.VizLegendOptions()
            .show_legend(show_legend=True)
            .display_mode(shapes.LegendDisplayMode.LIST)
            .placement(shapes.LegendPlacement.BOTTOM)
        )
        .tooltip(common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI).sort(shapes.SortOrder.DESCENDING))
    )


def _newest() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"])


def _number(panel: Panel) -> stat.Panel:
    builder = stat.Panel().reduce_options(_newest()).graph_mode(shapes.BigValueGraphMode.AREA)
    return builder.color_mode(shapes.BigValueColorMode.VALUE if panel.limits else shapes.BigValueColorMode.NONE)


def _bars(panel: Panel) -> bargauge.Panel:  # noqa: ARG001 - as the other builders
    return (
        bargauge.Panel()
        .reduce_options(_newest())
        .orientation(shapes.VizOrientation.HORIZONTAL)
        .display_mode(shapes.BarGaugeDisplayMode.BASIC)
    )


def _table(panel: Panel) -> table.Panel:
    """One row for each set of labels, one column for each query."""
    columns = {f"Value #{letter}": query for letter, query in zip(ascii_uppercase, panel.queries, strict=False)}
    if len(columns) == 1:
        columns = {"Value": panel.queries[0]}
    renamed = {name: query.legend for name, query in columns.items()}
    builder = table.Panel().with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    builder.with_transformation(
        models.DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": {"Time": True},
                "indexByName": {name: index for index, name in enumerate((*TITLES, *columns))},
                "renameByName": {**TITLES, **renamed},
            },
        )
    )
    for query in columns.values():
        unit = query.unit or Unit.COUNT
        builder.override_by_name(query.legend, [models.DynamicConfigValue(id_val="unit", value=unit.value)])
    return builder


_BUILDERS: Mapping[Chart, Callable[[Panel], _Graph]] = {
    Chart.SERIES: _series,
    Chart.STACK: _series,
    Chart.NUMBER: _number,
    Chart.BARS: _bars,
    Chart.TABLE: _table,
}


def _thresholds(limits: Sequence[Limit]) -> builders.ThresholdsConfig:
    """Steps of colours from the lowest value; a limit from below colours what is under it."""
    colours = {limit.alert: _COLOURS[_severity(limit.alert)] for limit in limits}
    lower = [limit for limit in limits if limit.is_lower]
    first = colours[lower[0].alert] if lower else _GOOD
    steps = [models.Threshold(value=None, color=first)]
    steps += [
        models.Threshold(value=limit.value, color=_GOOD if limit.is_lower else colours[limit.alert])
        for limit in sorted(limits, key=lambda limit: limit.value)
    ]
    return builders.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _severity(name: str) -> Severity:
    (severity,) = (alert.severity for alert in ALERTS if alert.name == name)
    return severity


def _runbook(alert: str, dashboard: Dashboard) -> builders.DashboardLink:
    kept = "".join(f"&${{{variable.name}:queryparam}}" for variable in dashboard.variables)
    return builders.DashboardLink(f"Runbook: {alert}").url(f"{runbook_address(alert)}&{_KEPT}{kept}")


def _opening(panel: Panel, dashboard: Dashboard, context: Context) -> builders.DashboardLink:
    """A link to another dashboard for what was clicked; a choice that its labels do not name is kept as it is."""
    target = context.dashboards[panel.opens]
    own = {variable.name for variable in dashboard.variables}
    parameters = [_KEPT]
    for variable in target.variables:
        label = _LABELS.get(variable.name, variable.label)
        if label in context.labels[panel]:
            field = f"__data.fields.{TITLES[label]}" if panel.chart is Chart.TABLE else f"__field.labels.{label}"
            parameters.append(f"var-{variable.name}=${{{field}}}")
        elif variable.name in own:
            parameters.append(f"${{{variable.name}:queryparam}}")
    return builders.DashboardLink(f"Open: {target.title}").url(f"/d/{target.uid}?{'&'.join(parameters)}")


def _compacted(panels: Sequence[dict[str, Any]]) -> None:
    """Number the rows, which the SDK gives the ID 0, and drop what the SDK adds to a panel's links, and Grafana ignores."""
    for index, panel in enumerate(panels):
        if panel["type"] == "row":
            panel["id"] = index + 1
        for holder in (panel, panel.get("fieldConfig", {}).get("defaults", {})):
            if "links" in holder:
                holder["links"] = [{key: link[key] for key in ("title", "url")} for link in holder["links"]]
