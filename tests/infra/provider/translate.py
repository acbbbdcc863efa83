"""A recorded graph as Terraform JSON; pulumi-aws bridges the Terraform provider resource by resource.

Naming rules (Pulumi, "Terraform bridge"): `aws:ec2/vpc:Vpc` is `aws_vpc` or `aws_ec2_vpc`, names are camelCase instead of
snake_case, repeatable blocks have plural names, other blocks are single objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.preview.recorded_outputs import computed, physical_id
from infra.preview.recording import Recording, Resource

RENAMED_TYPES = {
    "aws:autoscaling/tag:Tag": "aws_autoscaling_group_tag",
    "aws:rds/instance:Instance": "aws_db_instance",
    "aws:rds/parameterGroup:ParameterGroup": "aws_db_parameter_group",
    "aws:rds/subnetGroup:SubnetGroup": "aws_db_subnet_group",
}
"""Types with another name in Terraform."""

RENAMED_PROPERTIES = {("aws:sns/topicSubscription:TopicSubscription", "topic"): "topic_arn"}
"""Properties with another name in Terraform."""

_MIN_SUBSTRING = 8
"""Shorter values become references only as a whole value, because a version number may occur in any ID."""

Schemas = Mapping[str, Any]
Json = Any
"""JSON data."""

Configuration = dict[str, dict[str, dict[str, Any]]]
"""Resources by type and name."""


@dataclass
class Translation:
    """A graph as a Terraform configuration.

    Attributes:
        resources: configuration by type and name.
        urns: URN by address.
        unknown: properties that the provider lacks, as type token and path.
    """

    resources: Configuration = field(default_factory=dict)
    urns: dict[str, str] = field(default_factory=dict)
    unknown: set[tuple[str, str]] = field(default_factory=set)


def terraform_type(token: str, schemas: Schemas) -> str:
    """The Terraform name of a type.

    Raises:
        KeyError: the provider has no such type.
    """
    if token in RENAMED_TYPES:
        return RENAMED_TYPES[token]
    _, module, member = token.split(":")
    name = _snake(member)
    for candidate in (f"aws_{module.partition('/')[0]}_{name}", f"aws_{name}"):
        if candidate in schemas:
            return candidate
    raise KeyError(token)


def translate(recording: Recording, schemas: Schemas, *, prefix: str, account: str, region: str) -> Translation:
    """The AWS resources of a graph, with references instead of each other's values.

    Args:
        recording: the graph.
        schemas: the provider's schemas by Terraform type.
        prefix: prefix of every name, so that several graphs fit into one configuration.
        account: AWS account that the recording was made for.
        region: AWS region that the recording was made for.
    """
    resources = [one for one in recording.resources if one.type.startswith("aws:")]
    types = {one.urn: terraform_type(one.type, schemas) for one in resources}
    addresses = {one.urn: f"{types[one.urn]}.{_label(one, prefix)}" for one in resources}
    references = {
        one.urn: dict(_references(one, addresses[one.urn], schemas, account=account, region=region))
        for one in resources
    }
    result = Translation(urns={address: urn for urn, address in addresses.items()})
    assert len(result.urns) == len(resources), "two resources of a type have the same name"
    for one in resources:
        schema = schemas[types[one.urn]]["block"]
        block = _Translator(one, references, result).block(one.properties, schema, "")
        if schema["attributes"].get("name", {}).get("required"):
            block.setdefault("name", physical_id(one.type, one.name, one.properties))
        result.resources.setdefault(types[one.urn], {})[addresses[one.urn].partition(".")[2]] = block
    return result


class _Translator:
    """Translates the properties of one resource."""

    def __init__(self, resource: Resource, references: Mapping[str, Mapping[str, str]], result: Translation) -> None:
        self._resource = resource
        self._references = references
        self._result = result
        self._property = ""

    def block(self, value: Mapping[str, Any], schema: Mapping[str, Any], path: str) -> dict[str, Any]:
        """An object as a block of the schema."""
        names = _names(schema)
        translated: dict[str, Any] = {}
        for key, member in value.items():
            if not path:
                self._property = key
            where = f"{path}.{key}" if path else key
            name = RENAMED_PROPERTIES.get((self._resource.type, where)) or names.get(key)
            if name is None:
                self._result.unknown.add((self._resource.type, where))
            elif name in schema.get("block_types", {}):
                inner = schema["block_types"][name]["block"]
                several = member if isinstance(member, list) else [member]
                translated[name] = [self.block(one, inner, where) for one in several]
            else:
                translated[name] = self._attribute(member, schema["attributes"][name], where)
        return translated

    def _attribute(self, value: Json, schema: Mapping[str, Any], path: str) -> Json:
        if "nested_type" in schema:
            inner = schema["nested_type"]
            if isinstance(value, list):
                return [self.block(one, inner, path) for one in value]
            return self.block(value, inner, path)
        return self._leaf(value)

    def _leaf(self, value: Json) -> Json:
        if isinstance(value, Mapping):
            return {key: self._leaf(member) for key, member in value.items()}
        if isinstance(value, list):
            return [self._leaf(member) for member in value]
        if isinstance(value, str):
            return self._referring(value)
        return value

    def _referring(self, text: str) -> str:
        """The text with references instead of other resources' values."""
        known: dict[str, str] = {}
        for urn in self._resource.property_dependencies.get(self._property, ()):
            known |= self._references.get(urn, {})
        if text in known:
            return f"${{{known[text]}}}"
        escaped = text.replace("${", "$${")
        long = sorted((one for one in known if len(one) >= _MIN_SUBSTRING), key=len, reverse=True)
        if not long:
            return escaped
        return re.sub("|".join(map(re.escape, long)), lambda found: f"${{{known[found[0]]}}}", escaped)


def _references(
    resource: Resource, address: str, schemas: Schemas, *, account: str, region: str
) -> Iterator[tuple[str, str]]:
    """Computed values of a resource and the Terraform references to them; later ones win."""
    id_ = physical_id(resource.type, resource.name, resource.properties)
    facts = computed(resource.type, id_, resource.properties, account=account, region=region)
    attributes = _names(schemas[address.partition(".")[0]]["block"])
    for (head, *rest), value in _paths(facts):
        if head in attributes and (rest or head not in resource.properties):
            yield str(value), f"{address}.{attributes[head]}{''.join(rest)}"
    yield id_, f"{address}.id"


def _paths(value: Json) -> Iterator[tuple[tuple[str, ...], Json]]:
    """Leaves of a resource's outputs; in Terraform every nested object is the only element of a list."""
    for key, member in value.items():
        if isinstance(member, list):
            for index, one in enumerate(member):
                yield from (((key, f"[{index}]", *rest), leaf) for rest, leaf in _inner(one))
        elif isinstance(member, Mapping):
            yield from (((key, "[0]", *rest), leaf) for rest, leaf in _inner(member))
        else:
            yield (key,), member


def _inner(value: Json) -> Iterator[tuple[tuple[str, ...], Json]]:
    if not isinstance(value, Mapping):
        yield (), value
        return
    for path, leaf in _paths(value):
        yield (f".{_snake(path[0])}", *path[1:]), leaf


def _names(schema: Mapping[str, Any]) -> dict[str, str]:
    """Terraform name by Pulumi name, for everything in a block."""
    found: dict[str, str] = {}
    for name in (*schema.get("attributes", {}), *schema.get("block_types", {})):
        camel = _camel(name)
        for spelled in (f"{camel}s", f"{camel}es", re.sub("y$", "ies", camel)):
            found.setdefault(spelled, name)
    return found | {_camel(name): name for name in (*schema.get("attributes", {}), *schema.get("block_types", {}))}


def _label(resource: Resource, prefix: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", f"{prefix}-{resource.name}")


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part[:1].upper() + part[1:] for part in rest)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
