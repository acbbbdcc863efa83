"""A small evaluator of IAM policies: a double, because IAM's own simulator needs an account.

It has the operators that the deployer's policies use, and fails on any other. moto enforces policies too, but knows
neither conditions nor, outside S3, resources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

Context = Mapping[str, str]


def is_allowed(
    statements: Sequence[Mapping[str, Any]], action: str, resource: str, context: Context | None = None
) -> bool:
    """Whether a statement allows the action on the resource in this request context."""
    return any(
        statement["Effect"] == "Allow"
        and action in statement["Action"]
        and any(fnmatchcase(resource, pattern) for pattern in statement["Resource"])
        and _holds(statement.get("Condition", {}), context or {})
        for statement in statements
    )


def _holds(condition: Mapping[str, Mapping[str, Any]], context: Context) -> bool:
    return all(
        _matches(operator, values, context.get(key))
        for operator, keys in condition.items()
        for key, values in keys.items()
    )


def _matches(operator: str, values: str | Sequence[str], actual: str | None) -> bool:
    wanted = [values] if isinstance(values, str) else values
    if operator.endswith("IfExists"):
        return actual is None or _matches(operator.removesuffix("IfExists"), values, actual)
    if actual is None:
        return False
    if operator in {"StringEquals", "Bool"}:
        return actual in wanted
    assert operator in {"StringLike", "ArnLike", "ArnEquals"}, f"unknown operator {operator}"
    return any(fnmatchcase(actual, pattern) for pattern in wanted)
