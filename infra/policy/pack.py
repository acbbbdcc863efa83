"""The rules as a CrossGuard policy pack; converts the engine's resources to plain data."""

from __future__ import annotations

from collections.abc import Mapping

from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyPack,
    PolicyResource,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy.deserialize import serialize_properties
from pulumi_policy.proxy import (
    UNKNOWN_ARCHIVE_VALUE,
    UNKNOWN_ARRAY_VALUE,
    UNKNOWN_ASSET_VALUE,
    UNKNOWN_BOOLEAN_VALUE,
    UNKNOWN_NUMBER_VALUE,
    UNKNOWN_OBJECT_VALUE,
    UNKNOWN_STRING_VALUE,
)

from infra.policy.graph import UNKNOWN, Graph, Property, Resource, default_tags
from infra.policy.rule import ResourceRule, Rule, StackRule
from infra.policy.rules import RULES

NAME = "ray-train-platform"

_UNKNOWNS = frozenset(
    {
        UNKNOWN_ARCHIVE_VALUE,
        UNKNOWN_ARRAY_VALUE,
        UNKNOWN_ASSET_VALUE,
        UNKNOWN_BOOLEAN_VALUE,
        UNKNOWN_NUMBER_VALUE,
        UNKNOWN_OBJECT_VALUE,
        UNKNOWN_STRING_VALUE,
    }
)


def serve() -> None:
    """Serve the pack until the engine shuts it down."""
    PolicyPack(NAME, POLICIES, enforcement_level=EnforcementLevel.MANDATORY)


def _check_resource(args: ResourceValidationArgs, report: ReportViolation) -> None:
    rules = [rule for rule in RULES if isinstance(rule, ResourceRule) and rule.applies_to(args.resource_type)]
    resource = _to_resource(args) if rules else None
    for rule in rules:
        assert resource is not None, "there are rules"
        for message in rule.check(resource):
            report(_text(rule, resource, message), args.urn)


def _check_stack(args: StackValidationArgs, report: ReportViolation) -> None:
    graph = Graph(map(_to_resource, args.resources))
    for rule in RULES:
        if isinstance(rule, StackRule):
            for resource, message in rule.check(graph):
                report(_text(rule, resource, message), resource.urn if resource else None)


def _text(rule: Rule, resource: Resource | None, message: str) -> str:
    where = f"{resource.name}: " if resource else ""
    return f"{rule.name}: {where}{message}\nremedy: {rule.remedy}"


POLICIES: list[Policy] = [
    ResourceValidationPolicy(
        "resources", "What a resource has to fulfil by itself, before it is created.", _check_resource
    ),
    StackValidationPolicy("stack", "What the resources have to fulfil together.", _check_stack),
]
"""All rules in two policies: the SDK reads every resource anew for each policy, 64 times with a policy for each rule."""


def _to_resource(resource: ResourceValidationArgs | PolicyResource) -> Resource:
    """The resource as plain data; references are empty in resource validation, which runs before the stack is known."""
    dependencies = resource.property_dependencies if isinstance(resource, PolicyResource) else {}
    return Resource(
        type=resource.resource_type,
        name=resource.name,
        urn=resource.urn,
        properties=_plain(serialize_properties(resource.props)),
        protect=resource.opts.protect,
        references={prop: frozenset(one.urn for one in sources) for prop, sources in dependencies.items()},
        default_tags=default_tags(_plain(serialize_properties(resource.provider.props))) if resource.provider else {},
    )


def _plain(value: Property) -> Property:
    """The value without the SDK's proxies, which raise on access to an unknown value and would abort the rule."""
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items() if not str(key).startswith("__")}
    if isinstance(value, list):
        return [_plain(member) for member in value]
    if isinstance(value, str) and value in _UNKNOWNS:
        return UNKNOWN
    return int(value) if isinstance(value, float) and value.is_integer() else value
