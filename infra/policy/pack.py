"""The rules as a CrossGuard policy pack; converts the engine's resources to plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
    PolicyPack(NAME, [to_policy(rule) for rule in RULES], enforcement_level=EnforcementLevel.MANDATORY)


def to_policy(rule: Rule) -> Policy:
    """The rule as a CrossGuard policy."""
    level = EnforcementLevel(rule.enforcement)
    if isinstance(rule, ResourceRule):
        return ResourceValidationPolicy(
            rule.name, rule.description, _resource_check(rule), level, remediation_steps=rule.remedy
        )
    return StackValidationPolicy(rule.name, rule.description, _stack_check(rule), level, remediation_steps=rule.remedy)


def _resource_check(rule: ResourceRule) -> Callable[[ResourceValidationArgs, ReportViolation], None]:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        if rule.applies_to(args.resource_type):
            for message in rule.check(_to_resource(args)):
                report(f"{args.name}: {message}\nremedy: {rule.remedy}", args.urn)

    return validate


def _stack_check(rule: StackRule) -> Callable[[StackValidationArgs, ReportViolation], None]:
    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        for resource, message in rule.check(Graph(_to_resource(one) for one in args.resources)):
            where = f"{resource.name}: " if resource else ""
            report(f"{where}{message}\nremedy: {rule.remedy}", resource.urn if resource else None)

    return validate


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
