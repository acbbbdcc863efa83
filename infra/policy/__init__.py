"""The policy pack: what holds for every stack, checked before anything is created.

`pulumi preview --policy-pack infra/policy` runs it in the engine; `evaluate` runs the same functions over a recording.
"""

from __future__ import annotations

from collections.abc import Iterable

from infra.policy.graph import Graph
from infra.policy.rule import Finding, Rule
from infra.policy.rules import RULES

__all__ = ["RULES", "Finding", "Graph", "Rule", "evaluate"]


def evaluate(graph: Graph, rules: Iterable[Rule] = RULES) -> tuple[Finding, ...]:
    """Every place in the graph where a rule does not hold, in the order of the rules."""
    return tuple(Finding(rule, breach) for rule in rules for breach in rule.breaches(graph))
