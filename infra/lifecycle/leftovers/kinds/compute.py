"""The cluster, its node groups and their instances."""

from __future__ import annotations

from collections.abc import Iterator

from infra.lifecycle.leftovers.found import Call, Found, Key, Place
from infra.lifecycle.leftovers.kind import Kind, Phase, actions, one_call, pages, tags_in
from infra.lifecycle.leftovers.refusals import unless_gone, unless_whole_gone
from infra.spec.catalog import Catalog

CLUSTER = "EKS cluster"
INSTANCE = "EC2 instance"
_ENDED = "terminated"


def _find_clusters(place: Place) -> Iterator[Found]:
    eks = place.client("eks")
    for name in pages(eks, "list_clusters", "clusters"):
        with unless_gone():
            cluster = eks.describe_cluster(name=name)["cluster"]
            yield Found(
                id=name,
                tags=cluster.get("tags") or {},
                is_going=cluster["status"] == "DELETING",
                facts={"is_protected": bool(cluster.get("deletionProtection"))},
            )


def _remove_cluster(found: Found, _: Place) -> Iterator[Call]:
    if found.facts["is_protected"]:
        yield Call("eks", "UpdateClusterConfig", {"name": found.id, "deletionProtection": False})
    yield Call("eks", "DeleteCluster", {"name": found.id})


def _cluster_price(_: Found, catalog: Catalog) -> float | None:
    return catalog.prices.services.eks_cluster_hour.usd


def _find_node_groups(place: Place) -> Iterator[Found]:
    eks = place.client("eks")
    for cluster in pages(eks, "list_clusters", "clusters"):
        for name in unless_whole_gone(pages(eks, "list_nodegroups", "nodegroups", clusterName=cluster)):
            with unless_gone():
                group = eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]
                yield Found(
                    id=f"{cluster}:{name}",
                    tags=group.get("tags") or {},
                    parents=(Key(CLUSTER, cluster),),
                    is_going=group["status"] == "DELETING",
                )


def _remove_node_group(found: Found, __: Place) -> Iterator[Call]:
    cluster, _, name = found.id.partition(":")
    yield Call("eks", "DeleteNodegroup", {"clusterName": cluster, "nodegroupName": name})


def _find_scaling_groups(place: Place) -> Iterator[Found]:
    for group in pages(place.client("autoscaling"), "describe_auto_scaling_groups", "AutoScalingGroups"):
        # `Status` is there only while the group is being deleted (EC2 Auto Scaling API, AutoScalingGroup).
        name, is_going = group["AutoScalingGroupName"], bool(group.get("Status"))
        yield Found(id=name, tags=tags_in(group.get("Tags")), is_going=is_going)


def _remove_scaling_group(found: Found, _: Place) -> Iterator[Call]:
    yield Call("autoscaling", "DeleteAutoScalingGroup", {"AutoScalingGroupName": found.id, "ForceDelete": True})


def _find_instances(place: Place) -> Iterator[Found]:
    for reservation in pages(place.client("ec2"), "describe_instances", "Reservations"):
        for instance in reservation["Instances"]:
            state = instance["State"]["Name"]
            if state != _ENDED:
                yield Found(
                    id=instance["InstanceId"],
                    tags=tags_in(instance.get("Tags")),
                    is_going=state == "shutting-down",
                    facts={"type": instance["InstanceType"], "is_running": state in {"pending", "running"}},
                )


def _instance_price(found: Found, catalog: Catalog) -> float | None:
    """The on-demand price, which spot instances do not exceed."""
    if not found.facts["is_running"]:
        return 0.0
    known = catalog.instances.get(found.facts["type"])
    return known.usd_per_hour if known else None


def _remove_instance(found: Found, _: Place) -> Iterator[Call]:
    yield Call("ec2", "TerminateInstances", {"InstanceIds": [found.id]})


KINDS = (
    Kind(
        name="EKS node group",
        phase=Phase.NODE_GROUPS,
        find=_find_node_groups,
        remove=_remove_node_group,
        reads=actions("eks", "ListClusters ListNodegroups DescribeNodegroup"),
        writes=actions("eks", "DeleteNodegroup"),
    ),
    Kind(
        name="Auto Scaling group",
        phase=Phase.SCALING_GROUPS,
        find=_find_scaling_groups,
        remove=_remove_scaling_group,
        reads=actions("autoscaling", "DescribeAutoScalingGroups"),
        writes=actions("autoscaling", "DeleteAutoScalingGroup"),
    ),
    Kind(
        name=INSTANCE,
        phase=Phase.INSTANCES,
        find=_find_instances,
        remove=_remove_instance,
        reads=actions("ec2", "DescribeInstances"),
        writes=actions("ec2", "TerminateInstances"),
        price=_instance_price,
    ),
    Kind(
        name=CLUSTER,
        phase=Phase.CLUSTER,
        find=_find_clusters,
        remove=_remove_cluster,
        reads=actions("eks", "ListClusters DescribeCluster"),
        writes=actions("eks", "UpdateClusterConfig DeleteCluster"),
        price=_cluster_price,
    ),
    Kind(
        name="launch template",
        phase=Phase.TEMPLATES,
        find=lambda place: (
            Found(id=one["LaunchTemplateId"], name=one["LaunchTemplateName"], tags=tags_in(one.get("Tags")))
            for one in pages(place.client("ec2"), "describe_launch_templates", "LaunchTemplates")
        ),
        remove=one_call("ec2", "DeleteLaunchTemplate", "LaunchTemplateId"),
        reads=actions("ec2", "DescribeLaunchTemplates"),
        writes=actions("ec2", "DeleteLaunchTemplate"),
    ),
    Kind(
        name="placement group",
        phase=Phase.TEMPLATES,
        find=lambda place: (
            Found(id=one["GroupName"], tags=tags_in(one.get("Tags")), is_going=one.get("State") == "deleting")
            for one in pages(place.client("ec2"), "describe_placement_groups", "PlacementGroups")
            if one.get("State") != "deleted"
        ),
        remove=one_call("ec2", "DeletePlacementGroup", "GroupName"),
        reads=actions("ec2", "DescribePlacementGroups"),
        writes=actions("ec2", "DeletePlacementGroup"),
    ),
    Kind(
        name="key pair",
        phase=Phase.TEMPLATES,
        find=lambda place: (
            Found(id=one["KeyName"], tags=tags_in(one.get("Tags")))
            for one in pages(place.client("ec2"), "describe_key_pairs", "KeyPairs")
        ),
        remove=one_call("ec2", "DeleteKeyPair", "KeyName"),
        reads=actions("ec2", "DescribeKeyPairs"),
        writes=actions("ec2", "DeleteKeyPair"),
    ),
)
"""Kinds of this module."""
