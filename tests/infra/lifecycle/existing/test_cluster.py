"""The preflight of an existing cluster: each defect is planted in EKS's answers, and found with its rule and remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NoReturn

import pytest
from botocore.exceptions import ClientError

from infra.lifecycle.existing.cluster import FoundCluster, read_cluster
from infra.lifecycle.existing.cluster_rules import cluster_problems, needed_addons
from infra.lifecycle.image.availability import MissingImage
from infra.lifecycle.preflight.checks import problems
from infra.lifecycle.stack.stage import AccountState, Stage, is_private, next_steps, read_account, stage_of
from infra.spec.errors import RefusedError
from infra.spec.names import STACK_TAG, stack_tag
from infra.spec.release import load_release
from infra.spec.settings import StackSettings, from_mapping
from tests.infra.aws.graphs import settings_of
from tests.infra.lifecycle.existing.eks import ENDPOINT, Eks, Json
from tests.infra.lifecycle.existing.network import ACCOUNT, Network, account, make_network
from tests.infra.lifecycle.preflight.test_checks import case
from tests.infra.spec.samples import Tree, changed
from tests.infra.spec.test_existing import CLUSTER

RELEASE = load_release()
ROLE = "arn:aws:iam::111122223333:role"
DRIVER_ROLE = f"{ROLE}/shared-ebs-csi"
ADMIN = f"{ROLE}/platform-admin"
CLUSTER_GROUP = "sg-0123456789abcdef0"
RANGES = ("10.40.16.0/20", "10.40.32.0/20")
"""Of the subnets that the cluster was made with."""


@dataclass(frozen=True)
class Existing:
    """A VPC and a cluster in it that suit the platform."""

    network: Network
    eks: Eks

    @property
    def cluster(self) -> Json:
        return self.eks.clusters["shared"]

    def sections(self, changes: Tree | None = None) -> Tree:
        tree = changed(self.network.sections("existing-cluster"), {f"{CLUSTER}.control_plane_cidrs": list(RANGES)})
        return changed(tree, changes or {})

    def settings(self, changes: Tree | None = None) -> StackSettings:
        return from_mapping(self.sections(changes), file="sample")

    def read(self, settings: StackSettings | None = None) -> FoundCluster | None:
        settings = settings or self.settings()
        return read_cluster(settings, self.network.session, stack=stack_tag(settings))

    def answers(self, changes: Tree | None = None) -> list[str]:
        settings = self.settings(changes)
        found = cluster_problems(settings, RELEASE, self.read(settings))
        return [f"{message} | {remedy}" for message, remedy in found]


@pytest.fixture(scope="module")
def found() -> Iterator[Network]:
    with pytest.MonkeyPatch.context() as patch, account() as session:
        patch.setenv("AWS_ENDPOINT_URL_EKS", ENDPOINT)
        network = make_network(session)
        for cidr in RANGES:
            network.make_subnet(cidr)
        yield network


@contextmanager
def made(found: Network) -> Iterator[Existing]:
    """The cluster `shared` with every add-on that the stack does not install."""
    eks = Eks()
    with eks.serving(found.session):
        prepare(eks, found)
        yield Existing(found, eks)


@pytest.fixture
def existing(found: Network) -> Iterator[Existing]:
    with made(found) as one:
        yield one


def prepare(eks: Eks, found: Network) -> None:
    """Make the cluster in a VPC with the subnets that it was made with."""
    filters = [{"Name": "cidr-block", "Values": list(RANGES)}, {"Name": "vpc-id", "Values": [found.vpc_id]}]
    made = [one["SubnetId"] for one in found.ec2.describe_subnets(Filters=filters)["Subnets"]]
    eks.clusters["shared"] = {
        "name": "shared",
        "status": "ACTIVE",
        "version": RELEASE.kubernetes.version,
        "endpoint": "https://0123.gr7.us-east-1.eks.amazonaws.com",
        "certificateAuthority": {"data": "Q0E="},
        "accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"},
        "kubernetesNetworkConfig": {"serviceIpv4Cidr": "172.20.0.0/16", "ipFamily": "ipv4"},
        "resourcesVpcConfig": {
            "vpcId": found.vpc_id,
            "subnetIds": made,
            "clusterSecurityGroupId": CLUSTER_GROUP,
            "endpointPrivateAccess": True,
            "endpointPublicAccess": False,
        },
    }
    for name in needed_addons(settings_of("existing-cluster"), RELEASE):
        eks.addons[name] = {"addonName": name, "addonVersion": "v1.99.0-eksbuild.1", "status": "ACTIVE"}
    eks.addons["kube-proxy"]["addonVersion"] = f"v{RELEASE.kubernetes.version}.2-eksbuild.4"
    eks.associate("ebs-csi-controller-sa", DRIVER_ROLE)


def test_a_cluster_that_suits_the_platform_or_is_its_own_has_no_problem(existing: Existing) -> None:
    assert existing.answers() == []
    settings = settings_of("dev")
    assert read_cluster(settings, None, stack="") is None
    assert [*cluster_problems(settings, RELEASE, None)] == []


def in_addon(existing: Existing, name: str, **values: str) -> None:
    new = {"addonName": name, "addonVersion": "v1.0.0-eksbuild.1", "status": "ACTIVE"}
    existing.eks.addons.setdefault(name, new).update(values)


def old_minor(existing: Existing) -> None:
    existing.cluster["version"] = "1.30"
    in_addon(existing, "kube-proxy", addonVersion="v1.30.2-eksbuild.4")


def in_cluster(path: str, value: object) -> Callable[[Existing], object]:
    return lambda existing: changed(existing.cluster, {path: value})


SERVICES = "kubernetesNetworkConfig.serviceIpv4Cidr"
PLANTED: tuple[tuple[Callable[[Existing], object], str], ...] = (
    (old_minor, "has Kubernetes 1.30, the environment 1.35 | upgrade the cluster"),
    (in_cluster("status", "UPDATING"), "cluster shared is UPDATING, not ACTIVE"),
    (in_cluster("accessConfig.authenticationMode", "CONFIG_MAP"), "mode CONFIG_MAP, which knows no access entries"),
    (
        in_cluster("resourcesVpcConfig.vpcId", "vpc-0ffffffffffffff"),
        "is in vpc-0ffffffffffffff, network.existing.vpc_id",
    ),
    (
        in_cluster(SERVICES, "10.100.0.0/16"),
        "in 10.100.0.0/16, the environment 172.20.0.0/16 | set network.service_cidr",
    ),
    (in_cluster("kubernetesNetworkConfig.ipFamily", "ipv6"), "has IP family ipv6"),
    (in_cluster("resourcesVpcConfig.endpointPrivateAccess", False), "has no private endpoint"),
    (lambda one: in_addon(one, "kube-proxy", addonVersion="v1.33.1-b.1"), "shared is v1.33.1-b.1, Kubernetes 1.35"),
    (lambda one: in_addon(one, "coredns", status="DEGRADED"), "add-on coredns of cluster shared is DEGRADED"),
    (lambda one: in_addon(one, "aws-efs-csi-driver"), "aws-efs-csi-driver v1.0.0-eksbuild.1, which cluster.existing"),
    (
        lambda one: one.eks.associate("ebs-csi-controller-sa", ROLE),
        f"aws-ebs-csi-driver of cluster shared has {ROLE}; ",
    ),
    (lambda one: one.eks.identities.clear(), f"has no role; cluster.existing.driver_roles says {DRIVER_ROLE}"),
    (lambda one: one.eks.entries.update({ADMIN: {}}), f"has an access entry for {ADMIN}, which the stack would"),
    (
        lambda one: one.eks.associate("cluster-autoscaler", ROLE),
        "association for kube-system/cluster-autoscaler, which",
    ),
    (lambda one: one.eks.associate("cluster-autoscaler", ROLE), "-name shared --association-id cluster-autoscaler"),
    # Of an add-on that the stack would install, left by a driver that was not an add-on.
    (lambda one: one.eks.associate("efs-csi-node-sa", ROLE), "Identity association for kube-system/efs-csi-node-sa"),
    (
        lambda one: one.eks.nodegroups.update({"system-us-east-1a-0123456": {STACK_TAG: "ray-train-platform/other"}}),
        "has nodes of stack ray-train-platform/other | one environment per cluster",
    ),
)


def test_a_planted_defect_is_the_only_problem(found: Network) -> None:
    for plant, expected in PLANTED:
        with made(found) as existing:
            plant(existing)
            (told,) = existing.answers()
        assert expected in told


def test_a_setting_that_does_not_fit_the_cluster_is_the_only_problem(existing: Existing) -> None:
    ec2 = existing.network.ec2
    vpc = ec2.create_vpc(CidrBlock="10.77.0.0/16")["Vpc"]["VpcId"]
    far = ec2.create_security_group(GroupName="far", Description="far", VpcId=vpc)["GroupId"]
    settings: tuple[tuple[str, object, str], ...] = (
        ("name", "other", f"{CLUSTER}.name: the account has no cluster other in us-east-1"),
        ("control_plane_cidrs", ["10.40.16.0/20"], "control_plane_cidrs: [10.40.16.0/20, 10.40.32.0/20]"),
        ("admins", [ADMIN], f"has no access entry for {ADMIN}, which cluster.existing.admins names"),
        ("node_security_groups", [CLUSTER_GROUP], f"{CLUSTER_GROUP} is the security group of cluster shared, which"),
        ("node_security_groups", [far], f"groups.0: {existing.network.vpc_id} has no security group {far}"),
    )
    for name, value, expected in settings:
        (told,) = existing.answers({f"{CLUSTER}.{name}": value})
        assert expected in told
    existing.eks.entries[f"{ROLE}/research"] = {}
    (told,) = existing.answers({"teams.0.roles": [f"{ROLE}/research"]})
    assert "| delete the entry, and give the role the rights that it had by a role of its own" in told

    del existing.eks.entries[f"{ROLE}/research"]
    lowest = RELEASE.addons["eks-node-monitoring-agent"].minimum
    in_addon(existing, "eks-node-monitoring-agent", addonVersion="v1.6.0-eksbuild.1")
    (told,) = existing.answers({f"{CLUSTER}.addons": ["aws-efs-csi-driver"]})
    assert f"is v1.6.0-eksbuild.1, the release needs {lowest} or newer" in told


def test_what_the_stack_has_made_itself_or_its_settings_name_is_no_problem(existing: Existing) -> None:
    tag = {STACK_TAG: stack_tag(existing.settings())}
    existing.eks.entries[ADMIN] = tag
    existing.eks.nodegroups["system-us-east-1a-0123456"] = tag
    existing.eks.nodegroups["theirs"] = {}
    existing.eks.associate("mlflow", f"{ROLE}/mlflow-1", namespace="mlflow", tags=tag)
    addon = "arn:aws:eks:us-east-1:111122223333:addon/shared/aws-efs-csi-driver/0a1b"
    existing.eks.associate("efs-csi-node-sa", f"{ROLE}/efs-csi-1", ownerArn=addon)
    existing.eks.associate("theirs", f"{ROLE}/theirs")
    for name in ("aws-efs-csi-driver", "eks-node-monitoring-agent"):
        existing.eks.addons[name] = {"addonVersion": "v3.4.1-eksbuild.1", "status": "ACTIVE", "tags": tag}
    assert existing.answers() == []
    existing.eks.entries[ADMIN] = {}
    existing.eks.identities.clear()
    in_addon(existing, "aws-ebs-csi-driver", serviceAccountRoleArn=DRIVER_ROLE)
    assert existing.answers({f"{CLUSTER}.admins": [ADMIN]}) == []


def test_a_busy_server_is_asked_again_a_broken_one_fails(existing: Existing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    path = "/clusters/shared/addons"
    existing.eks.failing[path] = 2
    assert existing.answers() == []
    existing.eks.failing[path] = 100
    with pytest.raises(ClientError, match=r"ServerException|503"):
        existing.read()


def test_the_platform_waits_for_its_images_until_the_stack_has_nodes_on_the_cluster(existing: Existing) -> None:
    settings, mlflow = existing.settings(), MissingImage("mlflow", "repository missing")
    assert not is_private(settings)
    stages: tuple[tuple[tuple[MissingImage, ...], Stage], ...] = (((mlflow,), Stage.AWS), ((), Stage.ALL))
    for missing, stage in stages:
        state = AccountState(endpoint=None, missing=missing)
        assert stage_of(settings, state) is stage
        assert not any("tunnel" in step for step in next_steps(settings, state))
    assert read_account(settings, RELEASE, existing.network.session).endpoint is None
    existing.eks.nodegroups["system-us-east-1a-0123456"] = {}
    assert read_account(settings, RELEASE, existing.network.session).endpoint is None
    existing.eks.nodegroups["system-us-east-1b-0123456"] = {STACK_TAG: stack_tag(settings)}
    account = read_account(settings, RELEASE, existing.network.session)
    assert account.endpoint == existing.cluster["endpoint"]


def preflight(existing: Existing) -> list[str]:
    """The problems of the whole preflight, which cannot connect to the cluster."""

    def no_connection(*_: object, **__: object) -> NoReturn:
        raise RefusedError("the preflight cannot connect")

    one = replace(case(sections=existing.sections({"aws.allowed_accounts": [ACCOUNT]})), connect=no_connection)
    with existing.eks.serving(one.session):
        return [str(problem) for problem in problems(one)]


def test_the_preflight_names_the_problem_and_does_not_ask_a_cluster_without_an_api_server(existing: Existing) -> None:
    changed(existing.cluster, {"status": "FAILED"})
    told = preflight(existing)
    assert any("the preflight cannot connect" in line for line in told)
    assert any(line.startswith("the existing cluster fits the platform: cluster shared is FAILED") for line in told)
    changed(existing.cluster, {"status": "CREATING", "endpoint": ..., "certificateAuthority": {}})
    told = preflight(existing)
    assert not any("cannot connect" in line or "does not answer" in line for line in told)
    assert any("cluster shared is CREATING, not ACTIVE" in line for line in told)


def test_a_rule_that_the_clusters_group_has_already_is_named_unless_it_is_the_stacks(existing: Existing) -> None:
    ec2, peer = existing.network.ec2, "sg-0aaaabbbbccccdddd"
    group = ec2.create_security_group(GroupName="shared", Description="cluster", VpcId=existing.network.vpc_id)
    changed(existing.cluster, {"resourcesVpcConfig.clusterSecurityGroupId": group["GroupId"]})
    changes = {"network.peered_cidrs": ["10.99.0.0/16"], "cluster.client_cidrs": ["10.99.1.0/24", "10.99.2.0/24"]}

    def admit(cidr: str, port: int = 443, *, owner: str = "") -> None:
        rule = {"IpProtocol": "tcp", "FromPort": port, "ToPort": port, "IpRanges": [{"CidrIp": cidr}]}
        named = [{"Key": STACK_TAG, "Value": owner}]
        spec = [{"ResourceType": "security-group-rule", "Tags": named}] if owner else []
        ec2.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=[rule], TagSpecifications=spec)

    admit("10.99.2.0/24", owner=stack_tag(existing.settings()))
    admit("10.99.1.0/24", port=80)
    assert existing.answers(changes) == []
    admit("10.99.1.0/24")
    (told,) = existing.answers({**changes, "cluster.client_security_groups": [peer]})
    assert "admits 10.99.1.0/24 to port 443 already | omit 10.99.1.0/24 from cluster.client_cidrs" in told


def test_nodes_without_a_common_security_group_are_named_until_the_settings_have_it(existing: Existing) -> None:
    ec2 = existing.network.ec2
    group = ec2.create_security_group(GroupName="nodes", Description="nodes", VpcId=existing.network.vpc_id)["GroupId"]

    def start(**tags: str) -> str:
        named = [{"Key": key, "Value": value} for key, value in tags.items()]
        placed = {"SubnetId": existing.network.subnets["us-east-1a"], "SecurityGroupIds": [group]}
        spec = [{"ResourceType": "instance", "Tags": named}]
        made = ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1, TagSpecifications=spec, **placed)
        return str(made["Instances"][0]["InstanceId"])

    ours = start(**{"kubernetes.io/cluster/shared": "owned", STACK_TAG: "ray-train-platform/x"})
    assert existing.answers() == []
    theirs = start(**{"kubernetes.io/cluster/shared": "owned"})
    (told,) = existing.answers()
    assert f"has nodes with the security groups {group}, and without {CLUSTER_GROUP}" in told
    assert existing.answers({f"{CLUSTER}.node_security_groups": [group]}) == []
    ec2.terminate_instances(InstanceIds=[ours, theirs])
