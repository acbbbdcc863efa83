"""The graph of an environment in an existing VPC, and on an existing cluster: nothing of either is a resource of the stack."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import Any

import pytest

from infra.policy import evaluate, tokens
from infra.policy.graph import graph_from_recording
from infra.preview.recording import Recording, Resource, record
from infra.spec.outputs import read_outputs
from infra.spec.settings import from_mapping
from tests.infra.aws.graphs import EXISTING, aws_resources, graph, settings_of
from tests.infra.spec.samples import changed
from tests.infra.spec.test_existing import CLUSTER, example

OF_A_VPC = {
    "aws:ec2/vpc:Vpc",
    "aws:ec2/subnet:Subnet",
    "aws:ec2/internetGateway:InternetGateway",
    "aws:ec2/natGateway:NatGateway",
    "aws:ec2/eip:Eip",
    "aws:ec2/route:Route",
    "aws:ec2/routeTable:RouteTable",
    "aws:ec2/routeTableAssociation:RouteTableAssociation",
    "aws:ec2/vpcEndpoint:VpcEndpoint",
    "aws:ec2/flowLog:FlowLog",
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
}
"""Types of which an environment in an existing VPC has no resource."""

VPC_ID = "vpc-0a1b2c3d4e5f60718"
SUBNETS = {"us-east-1a": "subnet-0aaaaaaaaaaaaaaa1", "us-east-1b": "subnet-0bbbbbbbbbbbbbbb2"}
CLUSTER_GROUP = "sg-0c1a57e40000000aa"
"""The cluster security group in recordings."""

ADMIN = "arn:aws:iam::111122223333:role/platform-admin"
EFS_ROLE = "arn:aws:iam::111122223333:role/shared-efs-csi"
OTHER_GROUP = "sg-0fedcba9876543210"
UNUSUAL = {
    f"{CLUSTER}.addons": ["eks-node-monitoring-agent"],
    f"{CLUSTER}.driver_roles.aws-efs-csi-driver": EFS_ROLE,
    f"{CLUSTER}.admins": [ADMIN],
    f"{CLUSTER}.node_security_groups": [OTHER_GROUP],
    "network.peered_cidrs": ["10.99.0.0/16"],
    "cluster.client_cidrs": ["10.99.1.0/24"],
}
"""Changes of the example that use every setting of an existing cluster."""


@cache
def unusual_cluster() -> Recording:
    """The graph of the example of an existing cluster with `UNUSUAL`."""
    return record(from_mapping(changed(example("existing-cluster"), UNUSUAL), file="sample"))


def statements(resource: Resource, document: str = "policy") -> dict[str, dict[str, Any]]:
    return {one["Sid"]: one for one in json.loads(resource.properties[document])["Statement"]}


def test_destroy_cannot_touch_the_vpc_or_the_cluster_because_nothing_of_them_is_a_resource() -> None:
    """All other types, and every chart, are as in an environment of its own, and satisfy the policy."""
    dev = {one.type for one in graph("dev").resources}
    assert dev >= OF_A_VPC
    for environment in EXISTING:
        recording = graph(environment)
        types = {one.type for one in recording.resources}
        assert types & OF_A_VPC == set(), environment
        without = {tokens.CLUSTER} if environment == "existing-cluster" else set()
        assert dev - OF_A_VPC - {tokens.BUDGET, "rtp:aws:Budget"} - without <= types, environment
        charts, expected = (one.of_type(tokens.HELM_RELEASE) for one in (recording, graph("dev")))
        assert {one.name for one in charts} == {one.name for one in expected}, environment
        assert evaluate(graph_from_recording(recording)) == (), environment
    recording = graph("existing-cluster")
    assert recording.of_type(tokens.CLUSTER) == ()
    names = {(one.type, one.name) for one in recording.resources}
    assert (tokens.ROLE, "cluster") not in names
    assert (tokens.LOG_GROUP, "cluster") not in names
    assert {one.name for one in recording.of_type(tokens.KEY)} == {"logs", "volumes", "storage", "registry", "database"}


@pytest.mark.parametrize("environment", EXISTING)
def test_everything_is_in_the_vpc_and_the_subnets_of_the_settings(environment: str) -> None:
    recording = graph(environment)
    assert {one.properties["vpcId"] for one in recording.of_type(tokens.SECURITY_GROUP)} == {VPC_ID}
    groups = {one.name: one.properties["subnetIds"] for one in recording.of_type(tokens.NODE_GROUP)}
    assert groups["system-us-east-1b"] == [SUBNETS["us-east-1b"]]
    assert groups["a10g"] == [SUBNETS["us-east-1a"]]
    targets = {one.name: one.properties["subnetId"] for one in recording.of_type("aws:efs/mountTarget:MountTarget")}
    assert targets == SUBNETS
    (database,) = recording.of_type("aws:rds/subnetGroup:SubnetGroup")
    assert set(database.properties["subnetIds"]) == set(SUBNETS.values())


def test_an_environment_in_an_existing_vpc_makes_its_cluster_there() -> None:
    cluster = graph("existing-vpc").find(tokens.CLUSTER, "cluster")
    assert set(cluster.properties["vpcConfig"]["subnetIds"]) == set(SUBNETS.values())
    assert cluster.properties["name"] == "rtp-existing-vpc"


def test_the_stack_joins_the_cluster_by_its_real_name_and_keeps_its_own_names() -> None:
    recording = graph("existing-cluster")
    joined = [one for one in recording.resources if one.type.startswith("aws:eks/")]
    assert {one.properties["clusterName"] for one in joined} == {"shared"}
    trust = statements(recording.find(tokens.ROLE, "trainer"), "assumeRolePolicy")["PodsOfTheCluster"]
    arn = trust["Condition"]["StringEquals"]["aws:RequestTag/eks-cluster-arn"]
    assert arn == "arn:aws:eks:us-east-1:111122223333:cluster/shared"
    own = [
        *(one.properties["bucket"] for one in recording.of_type(tokens.BUCKET)),
        *(one.properties["name"] for one in recording.of_type(tokens.REPOSITORY)),
        *(one.properties["name"].removeprefix("alias/") for one in recording.of_type("aws:kms/alias:Alias")),
        *(one.properties["identifier"] for one in recording.of_type(tokens.DATABASE)),
    ]
    assert all(name.startswith("rtp-existing-cluster") for name in own)
    assert len(own) > 8


def test_only_the_add_ons_of_the_settings_are_installed_with_their_roles() -> None:
    recording = graph("existing-cluster")
    assert {one.name for one in recording.of_type(tokens.ADDON)} == {"aws-efs-csi-driver", "eks-node-monitoring-agent"}
    roles = {one.name for one in recording.of_type(tokens.ROLE)}
    assert "efs-csi" in roles
    assert roles & {"vpc-cni", "ebs-csi"} == set()


def test_the_volume_key_admits_the_clusters_driver() -> None:
    policy = statements(graph("existing-cluster").find(tokens.KEY, "volumes"))
    role = "arn:aws:iam::111122223333:role/shared-ebs-csi"
    assert policy["DriverUses"]["Principal"] == {"AWS": [role]}
    assert policy["DriverLendsToEbs"]["Condition"] == {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    assert "DriverUses" not in statements(graph("existing-vpc").find(tokens.KEY, "volumes"))


def test_the_file_system_admits_the_clusters_driver_through_the_stacks_access_points_only() -> None:
    recording = unusual_cluster()
    (policy,) = recording.of_type(tokens.FILE_SYSTEM_POLICY)
    allowed = statements(policy)["MountByAccessPoint"]
    assert allowed["Principal"] == {"AWS": EFS_ROLE}
    points = allowed["Condition"]["StringEquals"]["elasticfilesystem:AccessPointArn"]
    assert len(points) == len(recording.of_type("aws:efs/accessPoint:AccessPoint")) == 2
    assert "efs-csi" not in {one.name for one in recording.of_type(tokens.ROLE)}
    assert evaluate(graph_from_recording(recording)) == ()


def test_rules_of_the_clusters_security_group_are_the_stacks_and_tagged_as_such() -> None:
    recording = unusual_cluster()
    in_group = [one for one in aws_resources(recording) if one.properties.get("securityGroupId") == CLUSTER_GROUP]
    assert [(one.type, one.name) for one in in_group] == [(tokens.INGRESS_RULE, "client-10.99.1.0-24")]
    (provider,) = {one.provider for one in in_group}
    (found,) = [one for one in recording.resources if one.urn == provider]
    assert json.loads(found.properties["defaultTags"])["tags"]["stack"] == "ray-train-platform/existing-cluster"


def test_nodes_and_stores_use_the_clusters_security_group_and_the_nodes_those_of_its_other_nodes() -> None:
    recording = graph("existing-cluster")
    for name in ("efs", "database"):
        assert recording.find(tokens.INGRESS_RULE, name).properties["referencedSecurityGroupId"] == CLUSTER_GROUP
    assert recording.find(tokens.LAUNCH_TEMPLATE, "system").properties["vpcSecurityGroupIds"] == [CLUSTER_GROUP]
    system = unusual_cluster().find(tokens.LAUNCH_TEMPLATE, "system")
    assert system.properties["vpcSecurityGroupIds"] == [CLUSTER_GROUP, OTHER_GROUP]
    (card,) = unusual_cluster().find(tokens.LAUNCH_TEMPLATE, "a10g").properties["networkInterfaces"]
    assert set(card["securityGroups"]) >= {CLUSTER_GROUP, OTHER_GROUP}


def test_a_role_that_administers_the_cluster_already_gets_no_access_entry() -> None:
    assert [one.name for one in graph("existing-cluster").of_type("aws:eks/accessEntry:AccessEntry")] == [
        "platform-admin"
    ]
    assert unusual_cluster().of_type("aws:eks/accessEntry:AccessEntry") == ()


def test_the_autoscaler_may_change_the_stacks_groups_only() -> None:
    recording = graph("existing-cluster")
    tags = {"k8s.io/cluster-autoscaler/shared": "owned", "stack": "ray-train-platform/existing-cluster"}
    policy = statements(recording.find(tokens.ROLE_POLICY, "autoscaler"))["MoveOwnGroups"]
    assert policy["Condition"]["StringEquals"] == {f"aws:ResourceTag/{key}": value for key, value in tags.items()}
    tagged = Counter(one.properties["tag"]["key"] for one in recording.of_type(tokens.ASG_TAG))
    assert tagged["stack"] == len(recording.of_type(tokens.NODE_GROUP))
    assert "stack" not in {one.properties["tag"]["key"] for one in graph("existing-vpc").of_type(tokens.ASG_TAG)}


def values_of(environment: str, chart: str) -> dict[str, Any]:
    release = graph(environment).find(tokens.HELM_RELEASE, chart)
    values: dict[str, Any] = release.properties["values"]
    return values


def test_charts_of_a_shared_cluster_find_and_use_the_stacks_nodes_only() -> None:
    found = values_of("existing-cluster", "cluster-autoscaler")["autoDiscovery"]
    tags = ["k8s.io/cluster-autoscaler/shared=owned", "stack=ray-train-platform/existing-cluster"]
    assert found == {"clusterName": "shared", "tags": tags}
    assert values_of("existing-vpc", "cluster-autoscaler")["autoDiscovery"] == {"clusterName": "rtp-existing-vpc"}
    exporter = values_of("existing-cluster", "kube-prometheus-stack")["prometheus-node-exporter"]
    for values in (values_of("existing-cluster", "fluent-bit"), exporter):
        required = values["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (term,) = required["nodeSelectorTerms"]
        assert term["matchExpressions"] == [{"key": "ray-train-platform/group", "operator": "Exists"}]
    assert "affinity" not in values_of("existing-vpc", "fluent-bit")


def test_every_policy_rule_holds_in_the_preview_of_a_new_stack() -> None:
    """What AWS says about the cluster is known then, but no ID of a resource."""
    recording = record(settings_of("existing-cluster"), is_preview=True)
    assert evaluate(graph_from_recording(recording)) == ()
    assert recording.outputs["cluster"]["name"] == "shared"


def test_the_outputs_name_the_real_cluster() -> None:
    outputs = read_outputs({**graph("existing-cluster").outputs, "is_recorded": True}, file="recorded")
    assert outputs.cluster.name == "shared"
    assert outputs.cluster.endpoint.endswith(".eks.amazonaws.com")
    assert "ebs-csi" not in outputs.roles
    assert outputs.storage.checkpoint_bucket == "rtp-existing-cluster-checkpoints-111122223333"


def test_claims_of_others_do_not_get_the_stacks_volumes() -> None:
    for environment, is_default in (("existing-vpc", "true"), ("existing-cluster", None)):
        block = graph(environment).find("kubernetes:storage.k8s.io/v1:StorageClass", "storageclass-gp3")
        annotations = block.properties["metadata"].get("annotations", {})
        assert annotations.get("storageclass.kubernetes.io/is-default-class") == is_default, environment
