"""The delivered rules with shorter durations, so that a test does not wait for a quarter of an hour.

A minute of a rule takes some seconds; everything else is as delivered. What is shortened:

    for: 15m                                the wait of an alert
    rate(x[10m]), x offset 1h               ranges and offsets
    time() - x > 900, x > time() - 3600     seconds that are compared with an age, or subtracted from the present
    (x - x offset 1h) / 3600                the seconds of a range or an offset, as a divisor

Other numbers are shares, counts, or the time that something takes, such as the writing of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import promql_parser as promql
import yaml


def faster_rules(rules: Path, *, minute: int) -> str:
    """A file of rules as Prometheus reads it, in which a minute takes `minute` seconds."""
    groups = yaml.safe_load(rules.read_text(encoding="utf-8"))["groups"]
    faster_groups = [{**group, "rules": [_faster_rule(rule, minute) for rule in group["rules"]]} for group in groups]
    return yaml.safe_dump({"groups": faster_groups}, sort_keys=False)


def _faster_rule(rule: Mapping[str, Any], minute: int) -> dict[str, Any]:
    changed: dict[str, Any] = {**rule, "expr": faster(rule["expr"], minute=minute)}
    if rule.get("for", "0m") != "0m":
        changed["for"] = f"{_seconds(promql.parse_duration(rule['for']).total_seconds(), minute)}s"
    return changed


def faster(expression: str, *, minute: int) -> str:
    """An expression in which a minute takes `minute` seconds."""

    def with_shorter_number(node: promql.Expr) -> promql.Expr | None:
        if not isinstance(node, promql.BinaryExpr) or not isinstance(node.rhs, promql.NumberLiteral):
            return None
        is_divisor = str(node.op) == "/" and node.rhs.val in _durations(node.lhs)
        if not is_divisor and not _reads_clock(node.lhs):
            return None
        return promql.parse(f"{node.lhs} {node.op} {_seconds(node.rhs.val, minute)}")

    def with_shorter_duration(node: promql.Expr) -> promql.Expr | None:
        if isinstance(node, promql.MatrixSelector):
            return promql.parse(f"{node.vector_selector}[{_seconds(node.range.total_seconds(), minute)}s]")
        if isinstance(node, promql.SubqueryExpr) and node.range is not None and node.step is not None:
            times = (f"{_seconds(time.total_seconds(), minute)}s" for time in (node.range, node.step))
            return promql.parse(f"{node.expr}[{':'.join(times)}]")
        if isinstance(node, promql.VectorSelector) and node.offset is not None:
            selected, _, _ = str(node).rpartition(" offset ")
            return promql.parse(f"{selected} offset {_seconds(node.offset.total_seconds(), minute)}s")
        return None

    # The numbers first, because a divisor is told by the durations below it.
    numbers = promql.transform(promql.parse(expression), post_visit=with_shorter_number)
    return str(promql.transform(numbers, post_visit=with_shorter_duration))


def _seconds(seconds: float, minute: int) -> int:
    """A duration of the rules in seconds of the test; whole ones, because the parser prints no others."""
    faster_seconds, rest = divmod(seconds * minute, 60)
    assert rest == 0, f"{seconds} s are no whole seconds where a minute takes {minute}"
    return int(faster_seconds)


def _durations(expression: promql.Expr) -> set[float]:
    """Seconds of its ranges and offsets."""
    found: set[float] = set()

    def visit(node: promql.Expr) -> None:
        if isinstance(node, promql.MatrixSelector):
            found.add(node.range.total_seconds())
        if isinstance(node, promql.VectorSelector) and node.offset is not None:
            found.add(node.offset.total_seconds())

    promql.walk(expression, pre_visit=visit)
    return found


def _reads_clock(expression: promql.Expr) -> bool:
    """Whether it contains `time()`."""
    calls: list[str] = []

    def visit(node: promql.Expr) -> None:
        if isinstance(node, promql.Call):
            calls.append(node.func.name)

    promql.walk(expression, pre_visit=visit)
    return "time" in calls
