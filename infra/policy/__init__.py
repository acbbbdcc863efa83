"""The policy pack: rules for every stack, checked before Pulumi creates anything.

`pulumi preview --policy-pack infra/policy` runs it in the engine; `evaluate` runs the same rules over a recording.
"""

from __future__ import annotations

from collections.abc import Iterable

from infra.policy.graph import Graph
from infra.policy.rule import Finding, Rule
from infra.policy.rules import RULES

__all__ = ["RULES", "Finding", "Graph", "Rule", "evaluate"]


def evaluate(graph: Graph, rules: Iterable[Rule] = RULES) -> tuple[Finding, ...]:
    """All violations in the graph, in the order of the rules."""
    return tuple(Finding(rule, violation) for rule in rules for violation in rule.violations(graph))
