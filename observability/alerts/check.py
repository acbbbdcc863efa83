"""Checks rules against the metrics' inventory: names, types and labels of every expression, and the texts of alerts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from observability.alerts.model import Alert, Group
from observability.promql.checker import ExpressionChecker
from observability.promql.labels import Labels

_NAMED_LABEL = re.compile(r"\$labels\.(\w+)")


class RuleError(ValueError):
    """Rules select what nothing exports, or an alert's text is incomplete."""


def check_rules(groups: Sequence[Group]) -> ExpressionChecker:
    """Check all rules; those of recording rules are known to the rules after them.

    Returns:
        A checker that knows the recorded series, for expressions that use them.

    Raises:
        RuleError: lists every unknown metric or label with its rule and the nearest known name, every function that does not fit its
            metric's type, and every alert whose summary lacks its value or names a label that its expression does not have.
    """
    checker = ExpressionChecker()
    errors: list[str] = []
    seen: set[str] = set()
    for given in (given for group in groups for given in group.given):
        checker.record(given.name, frozenset(given.labels))
    for rule in (rule for group in groups for rule in group.rules):
        checked = checker.check(rule.expression)
        found = list(checked.errors)
        if rule.name in seen:
            found.append("another rule has this name")
        seen.add(rule.name)
        if isinstance(rule, Alert):
            found += map(checker.with_nearest, _text_errors(rule, checked.labels))
        else:
            checker.record(rule.name, checked.labels)
        errors += [f"{rule.name}: {error}" for error in dict.fromkeys(found)]
    if errors:
        lines = "".join(f"\n  {error}" for error in errors)
        raise RuleError(
            f"{len(errors)} errors in alert rules; correct them, or declare what is missing in "
            f"observability/metrics/external:{lines}"
        )
    return checker


def _text_errors(alert: Alert, labels: Labels) -> Iterator[str]:
    if "$value" not in alert.summary and not alert.is_state:
        yield "its summary has no {{ $value }}"
    if "{{" in alert.action:
        yield "its action has a template; values belong in the summary"
    for name in _NAMED_LABEL.findall(alert.summary):
        if name not in labels:
            yield f"unknown label '{name}' in its summary: the expression has {', '.join(sorted(labels)) or 'none'}"
