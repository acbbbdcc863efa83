"""Node groups and launch templates."""

from __future__ import annotations

from collections.abc import Iterator

from infra.policy import tokens
from infra.policy.graph import UNKNOWN, Graph, Resource
from infra.policy.rule import Violation, resource_rule, stack_rule
from infra.spec.node_labels import GPU_TAINT, GROUP_LABEL, SYSTEM_GROUP

_NODE_TEMPLATE_TAG = "k8s.io/cluster-autoscaler/node-template/"
_GPU_AMI = "NVIDIA"


@resource_rule(
    tokens.LAUNCH_TEMPLATE, remedy="set metadata_options: http_tokens required, http_put_response_hop_limit 1"
)
def nodes_require_imdsv2(template: Resource) -> Iterator[str]:
    """Nodes require IMDSv2 with a hop limit of 1, so that pods cannot get the node's credentials."""
    if not template.is_one_of("metadataOptions.httpTokens", "required"):
        yield f"httpTokens is {template.get('metadataOptions.httpTokens')}"
    if not template.is_one_of("metadataOptions.httpPutResponseHopLimit", 1):
        yield f"httpPutResponseHopLimit is {template.get('metadataOptions.httpPutResponseHopLimit')}"


@resource_rule(tokens.NODE_GROUP, remedy="set launch_template with id and version")
def node_groups_have_a_launch_template(group: Resource) -> Iterator[str]:
    """Node groups use a launch template, which sets disks and metadata options."""
    if not group.is_set("launchTemplate.id") or not group.is_set("launchTemplate.version"):
        yield "has no launch template with id and version"


@resource_rule(tokens.NODE_GROUP, remedy=f"taint the group {GPU_TAINT.key}={GPU_TAINT.value}:NO_SCHEDULE")
def gpu_nodes_are_tainted(group: Resource) -> Iterator[str]:
    """GPU nodes are tainted, so that pods without GPUs do not run there and prevent scale-down."""
    keys = {(taint.get("key"), taint.get("effect")) for taint in group.elements("taints")}
    if _has_gpus(group) and (GPU_TAINT.key, "NO_SCHEDULE") not in keys:
        yield f"has no taint {GPU_TAINT.key}"


@resource_rule(tokens.NODE_GROUP, remedy="set node_repair_config enabled=True")
def gpu_node_repair_is_enabled(group: Resource) -> Iterator[str]:
    """EKS node auto repair is enabled for GPU nodes, because one broken node blocks a multi-node job."""
    if _has_gpus(group) and not group.is_one_of("nodeRepairConfig.enabled", True):
        yield "nodeRepairConfig is not enabled"


@resource_rule(tokens.NODE_GROUP, remedy="set update_config max_unavailable_percentage")
def node_updates_are_limited(group: Resource) -> Iterator[str]:
    """Updates limit how many nodes are unavailable at a time."""
    if not group.is_set("updateConfig.maxUnavailable") and not group.is_set("updateConfig.maxUnavailablePercentage"):
        yield "updateConfig sets no limit"


@resource_rule(tokens.NODE_GROUP, remedy="set system_nodes.min_size to 1 or more")
def system_nodes_never_scale_to_zero(group: Resource) -> Iterator[str]:
    """The node groups of the platform keep at least one node each, because the autoscaler and zonal volumes need them."""
    smallest = group.get("scalingConfig.minSize")
    if group.is_one_of(f"labels.{GROUP_LABEL}", SYSTEM_GROUP) and smallest is not UNKNOWN and not smallest:
        yield f"minSize is {smallest}"


@stack_rule(remedy="tag the Auto Scaling group with the node template's labels, taints and resources")
def empty_node_groups_have_autoscaler_tags(graph: Graph) -> Iterator[Violation]:
    """Groups that may be empty have node-template tags, from which the autoscaler scales up from zero."""
    tagged = {
        urn
        for tag in graph.of_type(tokens.ASG_TAG)
        if str(tag.get("tag.key")).startswith(_NODE_TEMPLATE_TAG)
        for urn in tag.references.get("autoscalingGroupName", frozenset())
    }
    for group in graph.of_type(tokens.NODE_GROUP):
        if group.is_one_of("scalingConfig.minSize", 0) and group.urn not in tagged:
            yield Violation(group, "may be empty, but its Auto Scaling group has no node-template tags")


def _has_gpus(group: Resource) -> bool:
    return _GPU_AMI in str(group.get("amiType"))
