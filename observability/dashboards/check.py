"""Checks dashboards against the inventory of metrics, the alerts and each other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from observability.alerts.catalog import ALERTS, GROUPS
from observability.alerts.check import check_rules
from observability.dashboards.model import COLUMNS, Dashboard, Panel, Query, Variable
from observability.dashboards.templates import any_values, substituted, variables_of
from observability.promql.checker import ExpressionChecker, with_nearest
from observability.promql.labels import Labels

_LEGEND_LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")


class DashboardError(ValueError):
    """A dashboard selects what nothing exports, or refers to what does not exist."""


def check_dashboards(dashboards: Sequence[Dashboard]) -> Mapping[Panel, Labels]:
    """Check all dashboards.

    Returns:
        The labels that all results of a panel have.

    Raises:
        DashboardError: lists every unknown metric, label, variable, alert and dashboard with its panel and the nearest known name,
            every function that does not fit its metric's type, and every name that is not unique.
    """
    checker = check_rules(GROUPS)
    uids = [dashboard.uid for dashboard in dashboards]
    errors = [f"{uid}: another dashboard has this uid" for uid, count in Counter(uids).items() if count > 1]
    for dashboard in dashboards:
        for where, found in _errors(dashboard, checker, uids):
            errors.append(f"{dashboard.uid}, {where}: {found}")
    if errors:
        lines = "".join(f"\n  {error}" for error in errors)
        raise DashboardError(
            f"{len(errors)} errors in dashboards; correct them, or declare what is missing in "
            f"observability/metrics/external:{lines}"
        )
    return {panel: _labels(panel, dashboard, checker) for dashboard in dashboards for panel in dashboard.panels}


def _labels(panel: Panel, dashboard: Dashboard, checker: ExpressionChecker) -> Labels:
    values = any_values(dashboard)
    results = [checker.check(substituted(query.expression, values)).labels for query in panel.queries]
    return frozenset.intersection(*results)


def _errors(dashboard: Dashboard, checker: ExpressionChecker, uids: Iterable[str]) -> Iterator[tuple[str, str]]:
    titles = Counter(panel.title for row in dashboard.rows for panel in row.panels)
    yield from ((f"'{title}'", "another panel has this title") for title, count in titles.items() if count > 1)
    for row in dashboard.rows:
        yield from (
            (f"'{panel.title}'", f"wider than the {COLUMNS} columns of the grid")
            for panel in row.panels
            if panel.width > COLUMNS
        )
    for variable in dashboard.variables:
        yield from ((f"variable {variable.name}", error) for error in _variable(variable, dashboard, checker))
    for panel in dashboard.panels:
        where = f"'{panel.title}'"
        yield from ((where, error) for query in panel.queries for error in _query(query, dashboard, checker))
        yield from ((where, error) for error in _references(panel, uids))


def _variable(variable: Variable, dashboard: Dashboard, checker: ExpressionChecker) -> Iterator[str]:
    names = [one.name for one in dashboard.variables]
    earlier = names[: names.index(variable.name)]
    if unknown := sorted(variables_of(variable.selector) - set(earlier)):
        yield f"${unknown[0]} is not a variable before it"
        return
    checked = checker.check(substituted(variable.selector, any_values(dashboard)))
    yield from checked.errors
    if not checked.errors and variable.label not in checked.labels:
        yield with_nearest(
            f"unknown label '{variable.label}': the series have {_listed(checked.labels)}", checked.labels
        )


def _query(query: Query, dashboard: Dashboard, checker: ExpressionChecker) -> Iterator[str]:
    values = any_values(dashboard)
    if unknown := sorted(variables_of(query.expression) - set(values)):
        yield with_nearest(f"unknown variable '{unknown[0]}'", values)
        return
    checked = checker.check(substituted(query.expression, values))
    yield from checked.errors
    if checked.errors:
        return
    for label in _LEGEND_LABEL.findall(query.legend):
        if label not in checked.labels:
            error = f"unknown label '{label}' in its legend: the result has {_listed(checked.labels)}"
            yield with_nearest(error, checked.labels)


def _references(panel: Panel, uids: Iterable[str]) -> Iterator[str]:
    names = [alert.name for alert in ALERTS]
    for name in panel.all_alerts:
        if name not in names:
            yield with_nearest(f"unknown alert '{name}'", names)
    if panel.opens and panel.opens not in uids:
        yield with_nearest(f"unknown dashboard '{panel.opens}'", uids)


def _listed(labels: Iterable[str]) -> str:
    return ", ".join(sorted(labels)) or "none"
