"""A rule: a sentence that holds for every stack, and the function that finds where it does not.

The function's name is the sentence and the rule's name, its docstring the reason. A rule about one resource runs before
the engine creates it; a rule about several runs when the whole stack is known.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from infra.policy.graph import Graph, Subject

Enforcement = Literal["mandatory", "advisory"]
ResourceCheck = Callable[[Subject], Iterator[str]]
StackCheck = Callable[[Graph], Iterator["Breach"]]


class Breach(NamedTuple):
    """Where a rule about the stack does not hold: the resource, or None for the whole stack, and how."""

    subject: Subject | None
    message: str


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """What every rule has.

    Attributes:
        name: the sentence, with hyphens.
        description: the rule and its reason.
        remedy: what to do about a finding.
        enforcement: mandatory stops the preview, advisory is printed.
    """

    name: str
    description: str
    remedy: str
    enforcement: Enforcement


@dataclass(frozen=True, kw_only=True)
class ResourceRule(_Rule):
    """A rule about each resource of some types."""

    types: frozenset[str]
    check: ResourceCheck

    def applies_to(self, type_: str) -> bool:
        """Whether the rule is about resources of the type; without types it is about all."""
        return not self.types or type_ in self.types

    def breaches(self, graph: Graph) -> Iterator[Breach]:
        """Every place where the rule does not hold."""
        for subject in graph.subjects:
            if self.applies_to(subject.type):
                yield from (Breach(subject, message) for message in self.check(subject))


@dataclass(frozen=True, kw_only=True)
class StackRule(_Rule):
    """A rule about how resources go together."""

    check: StackCheck

    def breaches(self, graph: Graph) -> Iterator[Breach]:
        """Every place where the rule does not hold."""
        return self.check(graph)


Rule = ResourceRule | StackRule


def resource_rule(
    *types: str, remedy: str, enforcement: Enforcement = "mandatory"
) -> Callable[[ResourceCheck], ResourceRule]:
    """Make a function that yields one message for each way a resource breaks the rule into that rule."""

    def make(check: ResourceCheck) -> ResourceRule:
        name, description = _named(check)
        return ResourceRule(
            name=name,
            description=description,
            remedy=remedy,
            enforcement=enforcement,
            types=frozenset(types),
            check=check,
        )

    return make


def stack_rule(*, remedy: str, enforcement: Enforcement = "mandatory") -> Callable[[StackCheck], StackRule]:
    """Make a function that yields the breaches in a graph into a rule."""

    def make(check: StackCheck) -> StackRule:
        name, description = _named(check)
        return StackRule(name=name, description=description, remedy=remedy, enforcement=enforcement, check=check)

    return make


def _named(check: Callable[..., object]) -> tuple[str, str]:
    doc = inspect.getdoc(check)
    assert doc, f"the rule {check.__name__} has no docstring, which is its description"
    return check.__name__.replace("_", "-"), " ".join(doc.split())


class Finding(NamedTuple):
    """A breach, with the rule it breaks."""

    rule: Rule
    breach: Breach

    def __str__(self) -> str:
        where = self.breach.subject.name if self.breach.subject else "the stack"
        return f"{where}: {self.breach.message} [{self.rule.name}]\n    remedy: {self.rule.remedy}"
