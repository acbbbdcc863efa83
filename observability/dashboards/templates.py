"""Variables in queries: which ones a query uses, and the query with their values."""

from __future__ import annotations

import re
from collections.abc import Mapping

from observability.dashboards.model import Dashboard

GRAFANA: Mapping[str, str] = {"__rate_interval": "5m", "__range": "1h"}
"""Variables that Grafana sets, with values for which an expression can be parsed."""

_VARIABLE = re.compile(r"\$(\w+)")


def variables_of(expression: str) -> frozenset[str]:
    """Names of the variables that an expression uses."""
    return frozenset(_VARIABLE.findall(expression))


def substituted(expression: str, values: Mapping[str, str]) -> str:
    """The expression with the values of its variables.

    Raises:
        KeyError: a variable has no value.
    """
    return _VARIABLE.sub(lambda found: values[found[1]], expression)


def any_values(dashboard: Dashboard) -> Mapping[str, str]:
    """Values with which every series is chosen."""
    return {**GRAFANA, **{variable.name: ".*" for variable in dashboard.variables}}
