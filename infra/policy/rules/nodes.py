"""What every node of the cluster is, whatever its capacity."""

from __future__ import annotations

from collections.abc import Iterator

from infra.policy import tokens
from infra.policy.graph import UNKNOWN, Graph, Subject
from infra.policy.rule import Breach, resource_rule, stack_rule
from infra.spec.node_labels import GPU_TAINT

_AUTOSCALER_TAG = "k8s.io/cluster-autoscaler/node-template/"
_GPU_AMI = "NVIDIA"


@resource_rule(
    tokens.LAUNCH_TEMPLATE, remedy="set metadata_options: http_tokens required, http_put_response_hop_limit 1"
)
def nodes_demand_imdsv2_and_keep_it_from_pods(template: Subject) -> Iterator[str]:
    """Instance metadata answer to tokens only and one hop away, so that no pod takes the node's credentials."""
    if not template.says("metadataOptions.httpTokens", "required"):
        yield f"httpTokens is {template.get('metadataOptions.httpTokens')}"
    if not template.says("metadataOptions.httpPutResponseHopLimit", 1):
        yield f"httpPutResponseHopLimit is {template.get('metadataOptions.httpPutResponseHopLimit')}"


@resource_rule(tokens.NODE_GROUP, remedy="give the group a launch template of its own, by id and version")
def node_groups_have_a_launch_template(group: Subject) -> Iterator[str]:
    """A node group starts from a launch template: without one, EKS's defaults decide disks and metadata."""
    if not group.has("launchTemplate.id") or not group.has("launchTemplate.version"):
        yield "has no launch template with id and version"


@resource_rule(tokens.NODE_GROUP, remedy=f"taint the group {GPU_TAINT.key}={GPU_TAINT.value}:NO_SCHEDULE")
def gpu_nodes_are_tainted(group: Subject) -> Iterator[str]:
    """A GPU node takes only pods that ask for it: an operator's pod on it costs a GPU's price and stops scale-down."""
    keys = {(taint.get("key"), taint.get("effect")) for taint in group.each("taints")}
    if _has_gpus(group) and (GPU_TAINT.key, "NO_SCHEDULE") not in keys:
        yield f"has no taint {GPU_TAINT.key}"


@resource_rule(tokens.NODE_GROUP, remedy="set node_repair_config enabled=True")
def gpu_nodes_are_repaired(group: Subject) -> Iterator[str]:
    """EKS replaces GPU nodes that the monitoring agent finds broken, before a job of many nodes waits on one of them."""
    if _has_gpus(group) and not group.says("nodeRepairConfig.enabled", True):
        yield "nodeRepairConfig is not enabled"


@resource_rule(tokens.NODE_GROUP, remedy="set update_config max_unavailable_percentage")
def node_updates_are_limited(group: Subject) -> Iterator[str]:
    """An update replaces a stated share of a group at a time."""
    if not group.has("updateConfig.maxUnavailable") and not group.has("updateConfig.maxUnavailablePercentage"):
        yield "updateConfig sets no limit"


@resource_rule(tokens.NODE_GROUP, remedy="set system_nodes.min_size to 1 or more")
def the_system_group_never_scales_to_zero(group: Subject) -> Iterator[str]:
    """A group without GPUs keeps a node: the autoscaler itself runs there, and nothing else would start one."""
    smallest = group.get("scalingConfig.minSize")
    if not _has_gpus(group) and smallest is not UNKNOWN and not smallest:
        yield f"minSize is {smallest}"


@stack_rule(remedy="tag the group's autoscaling group with the node template's labels, taints and resources")
def groups_at_zero_tell_the_autoscaler_what_they_hold(graph: Graph) -> Iterator[Breach]:
    """A group that may be empty carries the autoscaler's template tags: without a node there is nothing else to read."""
    tagged = {
        urn
        for tag in graph.of(tokens.ASG_TAG)
        if str(tag.get("tag.key")).startswith(_AUTOSCALER_TAG)
        for urn in tag.references.get("autoscalingGroupName", frozenset())
    }
    for group in graph.of(tokens.NODE_GROUP):
        if group.says("scalingConfig.minSize", 0) and group.urn not in tagged:
            yield Breach(group, "may be empty, and its autoscaling group has no node-template tags")


def _has_gpus(group: Subject) -> bool:
    return _GPU_AMI in str(group.get("amiType"))
