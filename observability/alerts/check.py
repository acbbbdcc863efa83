"""Checks rules against the metrics' inventory: names, types and labels of every expression, and the texts of alerts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches

import promql_parser as promql

from observability.alerts.labels import LabelReader, Labels
from observability.alerts.model import Alert, Group, Rule
from observability.metrics.scraped import series_by_name

_NAMED_LABEL = re.compile(r"\$labels\.(\w+)")
_UNKNOWN = re.compile(r"unknown (metric|label) '([^']*)'")


class RuleError(ValueError):
    """Rules select what nothing exports, or an alert's text is incomplete."""


def check_rules(groups: Iterable[Group]) -> None:
    """Check all rules; those of recording rules are known to the rules after them.

    Raises:
        RuleError: lists every unknown metric or label with its rule and the nearest known name, every function that does not fit its
            metric's type, and every alert whose summary lacks its value or names a label that its expression does not have.
    """
    metrics = series_by_name()
    series = {name: metric.series()[name] for name, metric in metrics.items()}
    counters = frozenset(name for name, metric in metrics.items() if metric.kind != "gauge")
    errors: list[str] = []
    seen: set[str] = set()
    for rule in (rule for group in groups for rule in group.rules):
        found: list[str] = []
        reader = LabelReader(series, counters=counters, complain=found.append)
        labels = _labels(rule, reader, found)
        if rule.name in seen:
            found.append("another rule has this name")
        seen.add(rule.name)
        if isinstance(rule, Alert):
            found += _text_errors(rule, labels)
        else:
            series[rule.name] = labels
        known = [*series, *frozenset().union(*series.values())]
        errors += [f"{rule.name}: {_with_nearest(error, known)}" for error in dict.fromkeys(found)]
    if errors:
        lines = "".join(f"\n  {error}" for error in errors)
        raise RuleError(
            f"{len(errors)} errors in alert rules; correct them, or declare what is missing in "
            f"observability/metrics/external:{lines}"
        )


def _labels(rule: Rule, reader: LabelReader, errors: list[str]) -> Labels:
    try:
        return reader.labels_of(promql.parse(rule.expression))
    except ValueError as error:
        errors.append(f"{error} in {rule.expression}")
        return frozenset()


def _text_errors(alert: Alert, labels: Labels) -> Iterator[str]:
    if "$value" not in alert.summary and not alert.is_state:
        yield "its summary has no {{ $value }}"
    if "{{" in alert.action:
        yield "its action has a template; values belong in the summary"
    for name in _NAMED_LABEL.findall(alert.summary):
        if name not in labels:
            yield f"unknown label '{name}' in its summary: the expression has {', '.join(sorted(labels)) or 'none'}"


def _with_nearest(error: str, known: Sequence[str]) -> str:
    named = _UNKNOWN.search(error)
    nearest = get_close_matches(named[2], known, n=1) if named else []
    return f"{error}; did you mean '{nearest[0]}'?" if nearest else error
