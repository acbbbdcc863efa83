"""Tags and budgets."""

from __future__ import annotations

from collections.abc import Iterator

from infra.policy import tokens
from infra.policy.graph import Graph, Resource
from infra.policy.rule import Violation, resource_rule, stack_rule
from infra.spec.protection import EnvironmentKind

REQUIRED_TAGS = ("platform", "environment", "kind", "owner", "version")
"""Tags by which resources are found again, and costs reported."""

_LAUNCH_TAGS = tuple(tag for tag in REQUIRED_TAGS if tag != "version")
"""Tags of launched resources. A version would change the launch template, and replace every node, on each release."""

EXPIRY_TAG = "expires"
_LAUNCHED = ("instance", "volume", "network-interface")


@resource_rule(remedy="create the resource with the stack's provider, which has default tags")
def aws_resources_are_tagged(resource: Resource) -> Iterator[str]:
    """Every AWS resource has the tags that identify its stack and owner."""
    if not resource.type.startswith("aws:"):
        return
    missing = [tag for tag in REQUIRED_TAGS if not resource.tags.get(tag)]
    if missing:
        yield f"lacks the tags {', '.join(missing)}"


@resource_rule(remedy="set environment.expires")
def test_clusters_have_an_expiry_tag(resource: Resource) -> Iterator[str]:
    """Every resource of a test cluster has an expiry tag, which tells what may be deleted."""
    is_test = resource.type.startswith("aws:") and resource.kind is EnvironmentKind.TEST
    if is_test and not resource.tags.get(EXPIRY_TAG):
        yield f"lacks the tag {EXPIRY_TAG}"


@resource_rule(tokens.LAUNCH_TEMPLATE, remedy="add the stack's tags to tag_specifications of the launch template")
def launched_resources_are_tagged(template: Resource) -> Iterator[str]:
    """Instances, volumes and interfaces have the tags too; default tags do not apply to resources that EKS launches."""
    tagged = {one.get("resourceType"): one.get("tags") or {} for one in template.elements("tagSpecifications")}
    for kind in _LAUNCHED:
        missing = [tag for tag in _LAUNCH_TAGS if not tagged.get(kind, {}).get(tag)]
        if missing:
            yield f"launches each {kind} without the tags {', '.join(missing)}"


@stack_rule(remedy="set budget.monthly_usd and budget.email")
def budgets_are_set(graph: Graph) -> Iterator[Violation]:
    """Prod and test clusters have a budget with alerts."""
    if graph.kind in {EnvironmentKind.PROD, EnvironmentKind.TEST} and not any(graph.of_type(tokens.BUDGET)):
        yield Violation(None, f"has no budget, in {graph.kind}")
