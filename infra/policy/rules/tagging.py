"""Whose everything is, and until when."""

from __future__ import annotations

from collections.abc import Iterator

from infra.policy import tokens
from infra.policy.graph import Graph, Subject
from infra.policy.rule import Breach, resource_rule, stack_rule
from infra.spec.protection import EnvironmentKind

REQUIRED_TAGS = ("platform", "environment", "kind", "owner", "version")
"""Tags that the reaper, the leak audit and the bill are sorted by."""

_MACHINE_TAGS = tuple(tag for tag in REQUIRED_TAGS if tag != "version")
"""A machine carries no version: it would make each release a new launch template, which replaces every node."""

EXPIRY_TAG = "expires"
_MACHINES = ("instance", "volume", "network-interface")


@resource_rule(remedy="make the resource with the stack's own provider, whose default tags it takes")
def everything_is_tagged(subject: Subject) -> Iterator[str]:
    """Everything of AWS carries the tags that say which stack it belongs to and who answers for it."""
    if not subject.type.startswith("aws:"):
        return
    missing = [tag for tag in REQUIRED_TAGS if not subject.tags.get(tag)]
    if missing:
        yield f"lacks the tags {', '.join(missing)}"


@resource_rule(remedy="set environment.expires")
def test_clusters_carry_their_expiry(subject: Subject) -> Iterator[str]:
    """Everything in a test cluster says when it goes: the reaper works from tags, without any state."""
    is_test = subject.type.startswith("aws:") and subject.kind is EnvironmentKind.TEST
    if is_test and not subject.tags.get(EXPIRY_TAG):
        yield f"lacks the tag {EXPIRY_TAG}"


@resource_rule(tokens.LAUNCH_TEMPLATE, remedy="repeat the stack's tags in tag_specifications of the launch template")
def what_nodes_are_made_of_is_tagged(template: Subject) -> Iterator[str]:
    """Instances, volumes and interfaces carry the tags too: the provider's default tags do not reach what EKS launches."""
    tagged = {one.get("resourceType"): one.get("tags") or {} for one in template.each("tagSpecifications")}
    for machine in _MACHINES:
        missing = [tag for tag in _MACHINE_TAGS if not tagged.get(machine, {}).get(tag)]
        if missing:
            yield f"launches each {machine} without the tags {', '.join(missing)}"


@stack_rule(remedy="set budget.monthly_usd and budget.email")
def spending_is_watched(graph: Graph) -> Iterator[Breach]:
    """In prod and in test clusters a budget raises an alarm: the one is large, the other forgotten."""
    if graph.kind in {EnvironmentKind.PROD, EnvironmentKind.TEST} and not any(graph.of(tokens.BUDGET)):
        yield Breach(None, f"has no budget, in {graph.kind}")
