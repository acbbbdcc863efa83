"""Policy rules: functions that find violations, with a name, a description and a remedy.

The function's name is the rule's name and its docstring the description. A resource rule runs before the engine creates
the resource, a stack rule once all resources are known.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from infra.policy.graph import Graph, Resource

ResourceCheck = Callable[[Resource], Iterator[str]]
StackCheck = Callable[[Graph], Iterator["Violation"]]


class Violation(NamedTuple):
    """What violates a rule: the resource, None for the stack as a whole, and a message."""

    resource: Resource | None
    message: str


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """Common fields of all rules.

    Attributes:
        name: name of the function, with hyphens.
        description: docstring of the function.
        remedy: how to fix a violation.
    """

    name: str
    description: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class ResourceRule(_Rule):
    """A rule that checks each resource of some types."""

    types: frozenset[str]
    check: ResourceCheck

    def applies_to(self, type_: str) -> bool:
        """Whether the rule checks resources of this type; a rule without types checks all."""
        return not self.types or type_ in self.types

    def violations(self, graph: Graph) -> Iterator[Violation]:
        """All violations in the graph."""
        for resource in graph.resources:
            if self.applies_to(resource.type):
                yield from (Violation(resource, message) for message in self.check(resource))


@dataclass(frozen=True, kw_only=True)
class StackRule(_Rule):
    """A rule that checks several resources together."""

    check: StackCheck

    def violations(self, graph: Graph) -> Iterator[Violation]:
        """All violations in the graph."""
        return self.check(graph)


Rule = ResourceRule | StackRule


def resource_rule(*types: str, remedy: str) -> Callable[[ResourceCheck], ResourceRule]:
    """Decorate a function that yields a message per violation of one resource."""

    def make(check: ResourceCheck) -> ResourceRule:
        name, description = _name_and_description(check)
        return ResourceRule(
            name=name,
            description=description,
            remedy=remedy,
            types=frozenset(types),
            check=check,
        )

    return make


def stack_rule(*, remedy: str) -> Callable[[StackCheck], StackRule]:
    """Decorate a function that yields the violations in a graph."""

    def make(check: StackCheck) -> StackRule:
        name, description = _name_and_description(check)
        return StackRule(name=name, description=description, remedy=remedy, check=check)

    return make


def _name_and_description(check: Callable[..., object]) -> tuple[str, str]:
    doc = inspect.getdoc(check)
    assert doc, f"the rule {check.__name__} has no docstring, which is its description"
    return check.__name__.replace("_", "-"), " ".join(doc.split())


class Finding(NamedTuple):
    """A violation and the rule."""

    rule: Rule
    violation: Violation

    def __str__(self) -> str:
        where = self.violation.resource.name if self.violation.resource else "the stack"
        return f"{where}: {self.violation.message} [{self.rule.name}]\n    remedy: {self.rule.remedy}"
