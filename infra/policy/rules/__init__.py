"""All rules of the policy pack, a module per topic."""

from __future__ import annotations

from types import ModuleType

from infra.policy.rule import ResourceRule, Rule, StackRule
from infra.policy.rules import (
    access,
    encryption,
    iam,
    logs,
    network,
    nodes,
    outputs,
    protection,
    supply_chain,
    tagging,
)

_TOPICS: tuple[ModuleType, ...] = (
    encryption,
    access,
    iam,
    network,
    nodes,
    protection,
    tagging,
    supply_chain,
    logs,
    outputs,
)

RULES_BY_TOPIC: dict[str, tuple[Rule, ...]] = {
    module.__name__.rpartition(".")[2]: tuple(
        member for member in vars(module).values() if isinstance(member, (ResourceRule, StackRule))
    )
    for module in _TOPICS
}
"""Rules by module name, in the order of definition."""

RULES: tuple[Rule, ...] = tuple(rule for rules in RULES_BY_TOPIC.values() for rule in rules)
