"""What the rules look at: resources as plain data, the same from a recording as from Pulumi's engine.

During a preview a value may be unknown. It is `UNKNOWN` here and satisfies every rule that looks at it: the update asks
again, when the value is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infra.policy import tokens
from infra.preview.recording import UNKNOWN, Recording
from infra.spec.protection import EnvironmentKind

__all__ = ["KIND_TAG", "UNKNOWN", "Graph", "Property", "Subject", "at", "default_tags", "graph_of"]

Property = Any
"""A property's value: what JSON can say, or `UNKNOWN`. Providers' schemas type it, this program does not."""

KIND_TAG = "kind"
"""Default tag of the provider that says what the environment is for."""


def at(value: object, path: str) -> Property:
    """The value at a dotted path of property names and list indices; None where the path ends early."""
    for part in path.split("."):
        if value is UNKNOWN:
            return UNKNOWN
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, Sequence) and not isinstance(value, str) and part.isdecimal():
            value = value[int(part)] if int(part) < len(value) else None
        else:
            return None
    return value


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One resource.

    Attributes:
        type: type token, e.g. aws:s3/bucket:Bucket.
        name: logical name.
        urn: the resource's URN.
        properties: inputs by Pulumi's camel-case names, secrets unwrapped, unknown values `UNKNOWN`.
        protect: Pulumi refuses to delete the resource.
        references: URNs that the value of a property is taken from, by property.
        default_tags: tags that the resource's provider gives to everything it makes.
    """

    type: str
    name: str
    urn: str
    properties: Mapping[str, Property]
    protect: bool = False
    references: Mapping[str, frozenset[str]] = field(default_factory=dict)
    default_tags: Mapping[str, Property] = field(default_factory=dict)

    def get(self, path: str) -> Property:
        """The property at a dotted path, `UNKNOWN`, or None."""
        return at(self.properties, path)

    def each(self, path: str) -> tuple[Any, ...]:
        """The known elements of the list at a path; empty where there is none."""
        value = self.get(path)
        is_list = isinstance(value, Sequence) and not isinstance(value, str)
        return tuple(one for one in value if one is not UNKNOWN) if is_list else ()

    def has(self, path: str) -> bool:
        """Whether the property is given, be it unknown yet."""
        value = self.get(path)
        return value is not None and value != ""

    def says(self, path: str, *allowed: object) -> bool:
        """Whether the property is one of `allowed`, or unknown yet."""
        value = self.get(path)
        return value is UNKNOWN or value in allowed

    @property
    def tags(self) -> dict[str, Any]:
        """The resource's tags, on top of its provider's."""
        own = self.get("tags")
        return {**self.default_tags, **(own if isinstance(own, Mapping) else {})}

    @property
    def kind(self) -> EnvironmentKind:
        """What the environment is for; prod where no tag says so, which is the strictest."""
        kind = self.default_tags.get(KIND_TAG)
        return EnvironmentKind(kind) if isinstance(kind, str) else EnvironmentKind.PROD

    @property
    def is_guarded(self) -> bool:
        """Whether the environment holds what may not be lost: staging and prod."""
        return self.kind in {EnvironmentKind.STAGING, EnvironmentKind.PROD}


class Graph:
    """All resources of a stack."""

    def __init__(self, subjects: Iterable[Subject]) -> None:
        self.subjects = tuple(subjects)

    def of(self, *types: str) -> Iterator[Subject]:
        """Resources of these types."""
        return (subject for subject in self.subjects if subject.type in types)

    def about(self, subject: Subject, type_: str, prop: str) -> Iterator[Subject]:
        """Resources of a type whose property `prop` is taken from `subject`, e.g. the policy of a bucket."""
        return (other for other in self.of(type_) if subject.urn in other.references.get(prop, frozenset()))

    @property
    def kind(self) -> EnvironmentKind:
        """What the environment is for; prod where no tag says so."""
        kinds = {subject.kind for subject in self.subjects if subject.default_tags}
        return kinds.pop() if len(kinds) == 1 else EnvironmentKind.PROD


def graph_of(recording: Recording) -> Graph:
    """The graph that a program was recorded to make, with the stack and its outputs as one more resource."""
    providers = {one.urn: one.properties for one in recording.resources}
    subjects = [
        Subject(
            type=one.type,
            name=one.name,
            urn=one.urn,
            properties=one.properties,
            protect=one.protect,
            references={prop: frozenset(urns) for prop, urns in one.property_dependencies.items()},
            default_tags=default_tags(providers.get(one.provider or "", {})),
        )
        for one in recording.resources
        if not one.is_component
    ]
    stack = Subject(type=tokens.STACK, name="stack", urn=tokens.STACK, properties=recording.outputs)
    return Graph([*subjects, stack])


def default_tags(provider: Mapping[str, Property]) -> Mapping[str, Property]:
    """Default tags among a provider's properties; nested properties of a provider arrive as JSON text."""
    value = provider.get("defaultTags")
    parsed = json.loads(value) if isinstance(value, str) else value
    tags = at(parsed, "tags")
    return tags if isinstance(tags, Mapping) else {}
