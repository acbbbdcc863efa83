"""The resources that rules check, as plain data from a recording or from Pulumi's engine.

A value that is unknown during a preview is `UNKNOWN` and satisfies every rule; the update checks it again once known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infra.policy import tokens
from infra.preview.recording import UNKNOWN, Recording
from infra.spec.protection import EnvironmentKind

__all__ = ["KIND_TAG", "UNKNOWN", "Graph", "Property", "Resource", "at", "default_tags", "graph_from_recording"]

Property = Any
"""A property's value: JSON data or `UNKNOWN`."""

KIND_TAG = "kind"
"""Default tag of the provider with the kind of the environment."""


def at(value: object, path: str) -> Property:
    """The value at a dotted path of property names and list indices; None if the path does not exist."""
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
class Resource:
    """One resource.

    Attributes:
        type: type token, e.g. aws:s3/bucket:Bucket.
        name: logical name.
        urn: the resource's URN.
        properties: inputs by camelCase name; secrets are unwrapped, unknown values are `UNKNOWN`.
        protect: the resource option `protect`.
        references: URNs that the value of a property depends on, by property.
        default_tags: default tags of the resource's provider.
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

    def elements(self, path: str) -> tuple[Any, ...]:
        """The known elements of the list at a path; empty if there is no list."""
        value = self.get(path)
        is_list = isinstance(value, Sequence) and not isinstance(value, str)
        return tuple(one for one in value if one is not UNKNOWN) if is_list else ()

    def is_set(self, path: str) -> bool:
        """Whether the property has a value, known or not."""
        value = self.get(path)
        return value is not None and value != ""

    def is_one_of(self, path: str, *allowed: object) -> bool:
        """Whether the property is one of `allowed` or unknown."""
        value = self.get(path)
        return value is UNKNOWN or value in allowed

    @property
    def tags(self) -> dict[str, Any]:
        """The resource's tags, including the provider's default tags."""
        own = self.get("tags")
        return {**self.default_tags, **(own if isinstance(own, Mapping) else {})}

    @property
    def kind(self) -> EnvironmentKind:
        """Kind of the environment; without the tag prod, the strictest."""
        kind = self.default_tags.get(KIND_TAG)
        return EnvironmentKind(kind) if isinstance(kind, str) else EnvironmentKind.PROD

    @property
    def needs_protection(self) -> bool:
        """Whether the environment's state must not be lost, as in staging and prod."""
        return self.kind in {EnvironmentKind.STAGING, EnvironmentKind.PROD}


class Graph:
    """All resources of a stack."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self.resources = tuple(resources)

    def of_type(self, *types: str) -> Iterator[Resource]:
        """All resources of these types."""
        return (resource for resource in self.resources if resource.type in types)

    def referring_to(self, resource: Resource, type_: str, prop: str) -> Iterator[Resource]:
        """Resources of a type whose property `prop` refers to `resource`, e.g. the policy of a bucket."""
        return (other for other in self.of_type(type_) if resource.urn in other.references.get(prop, frozenset()))

    @property
    def kind(self) -> EnvironmentKind:
        """Kind of the environment; without the tag prod."""
        kinds = {resource.kind for resource in self.resources if resource.default_tags}
        return kinds.pop() if len(kinds) == 1 else EnvironmentKind.PROD


def graph_from_recording(recording: Recording) -> Graph:
    """The graph of a recording, with the stack and its outputs as an additional resource."""
    providers = {one.urn: one.properties for one in recording.resources}
    resources = [
        Resource(
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
    stack = Resource(type=tokens.STACK, name="stack", urn=tokens.STACK, properties=recording.outputs)
    return Graph([*resources, stack])


def default_tags(provider: Mapping[str, Property]) -> Mapping[str, Property]:
    """Default tags in a provider's properties; the engine passes nested properties of a provider as JSON text."""
    value = provider.get("defaultTags")
    parsed = json.loads(value) if isinstance(value, str) else value
    tags = at(parsed, "tags")
    return tags if isinstance(tags, Mapping) else {}
