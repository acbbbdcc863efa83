"""What AWS says about an existing EKS cluster: plain facts, read once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple

from infra.lifecycle.account.aws import Client, Session
from infra.lifecycle.existing.requests import RETRIES, pages, tags_of
from infra.spec.names import CNI_ACCOUNT, PLATFORM_ACCOUNTS, STACK_TAG, ServiceAccount, trainer_account
from infra.spec.outputs import ClusterOutput
from infra.spec.settings.cluster import Driver
from infra.spec.settings.loading import PROJECT
from infra.spec.settings.stack import StackSettings

DRIVER_ACCOUNTS: Mapping[Driver, tuple[ServiceAccount, ...]] = {
    "aws-ebs-csi-driver": PLATFORM_ACCOUNTS["ebs-csi"],
    "aws-efs-csi-driver": PLATFORM_ACCOUNTS["efs-csi"],
}
"""Service accounts of the pods of each storage driver."""

_DRIVER_ACCOUNTS = frozenset(account for accounts in DRIVER_ACCOUNTS.values() for account in accounts)


@dataclass(frozen=True, kw_only=True)
class AddOn:
    """An EKS add-on of the cluster.

    Attributes:
        version: its version, e.g. v1.20.0-eksbuild.1.
        status: e.g. ACTIVE.
        stack: the tag `stack`; empty without one.
        role: role of its service account by IAM roles for service accounts; empty without one.
    """

    version: str
    status: str
    stack: str
    role: str = ""


@dataclass(frozen=True, kw_only=True)
class FoundCluster:
    """A cluster as far as the platform is concerned.

    Attributes:
        name: its name.
        status: e.g. ACTIVE.
        version: Kubernetes minor.
        authentication: API, API_AND_CONFIG_MAP or CONFIG_MAP.
        vpc_id: its VPC.
        service_cidr: range of its services; empty for IPv6.
        ip_family: ipv4 or ipv6.
        endpoint: URL of the API server.
        authority: CA certificate, base64.
        has_private_endpoint: whether the VPC's own addresses reach it.
        subnet_cidrs: ranges of the subnets that it was made with.
        security_group_id: the security group that EKS has made for it.
        node_security_groups: security groups of each of its nodes that is not of a stack of ours.
        known_security_groups: those of `cluster.existing.node_security_groups` that its VPC has.
        admitted: ranges and security groups that its security group admits to the API server, by rules that are not the stack's.
        addons: its EKS add-ons by name.
        driver_roles: roles that the pods of each storage driver have.
        foreign_entries: roles of the settings with an access entry that is not the stack's.
        foreign_associations: ID of each Pod Identity association that is not the stack's, by a service account that the stack
            would give a role.
        stacks: values of the tag `stack` of its node groups.
    """

    name: str
    status: str
    version: str
    authentication: str
    vpc_id: str
    service_cidr: str
    ip_family: str
    endpoint: str
    authority: str
    has_private_endpoint: bool
    subnet_cidrs: frozenset[str]
    security_group_id: str
    node_security_groups: frozenset[frozenset[str]]
    known_security_groups: frozenset[str]
    admitted: frozenset[str]
    addons: Mapping[str, AddOn]
    driver_roles: Mapping[Driver, frozenset[str]]
    foreign_entries: frozenset[str]
    foreign_associations: Mapping[ServiceAccount, str]
    stacks: frozenset[str]

    @property
    def output(self) -> ClusterOutput | None:
        """What a connection needs; None while EKS creates the cluster, and where that has failed."""
        if not (self.endpoint and self.authority):
            return None
        return ClusterOutput(
            name=self.name, endpoint=self.endpoint, certificate_authority=self.authority, kubernetes=self.version
        )


def read_cluster(settings: StackSettings, session: Session, *, stack: str) -> FoundCluster | None:
    """The existing cluster of an environment; None if it does not exist, or the settings name none.

    Args:
        settings: the environment.
        session: boto3 session in its region.
        stack: value of the tag `stack` of what the environment owns.

    Raises:
        BotoCoreError: AWS does not answer.
        ClientError: AWS refuses the request.
    """
    stated = settings.cluster.existing
    if stated is None:
        return None
    eks, ec2 = session.client("eks", config=RETRIES), session.client("ec2", config=RETRIES)
    try:
        found = eks.describe_cluster(name=stated.name)["cluster"]
    except eks.exceptions.ResourceNotFoundException:
        return None
    vpc, services = found["resourcesVpcConfig"], found.get("kubernetesNetworkConfig", {})
    addons = {name: _addon(one) for name, one in _addons(eks, stated.name)}
    associations = tuple(_associations(eks, stated.name, {*_own_accounts(settings), *_DRIVER_ACCOUNTS}))
    group = vpc.get("clusterSecurityGroupId", "")
    principals = [*settings.cluster.admin_roles, *(role for team in settings.teams for role in team.roles)]
    return FoundCluster(
        name=stated.name,
        status=found["status"],
        version=found["version"],
        authentication=found.get("accessConfig", {}).get("authenticationMode", "CONFIG_MAP"),
        vpc_id=vpc.get("vpcId", ""),
        service_cidr=services.get("serviceIpv4Cidr", ""),
        ip_family=services.get("ipFamily", "ipv4"),
        endpoint=found.get("endpoint", ""),
        authority=found.get("certificateAuthority", {}).get("data", ""),
        has_private_endpoint=bool(vpc.get("endpointPrivateAccess")),
        subnet_cidrs=frozenset(_ranges(ec2, vpc["subnetIds"])),
        security_group_id=group,
        node_security_groups=frozenset(_groups_of_nodes(ec2, stated.name)),
        known_security_groups=frozenset(_known_groups(ec2, vpc.get("vpcId", ""), stated.node_security_groups)),
        admitted=frozenset(_admitted(ec2, group, stack)),
        addons=addons,
        driver_roles={driver: frozenset(_roles(driver, addons, associations)) for driver in DRIVER_ACCOUNTS},
        foreign_entries=frozenset(_foreign_entries(eks, stated.name, principals, stack)),
        foreign_associations={
            one.account: one.id
            for one in associations
            if one.account in _own_accounts(settings) and not one.is_of(stack, addons)
        },
        stacks=frozenset(_stacks(eks, stated.name)),
    )


def _addons(eks: Client, cluster: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for page in eks.get_paginator("list_addons").paginate(clusterName=cluster):
        for name in page["addons"]:
            yield name, eks.describe_addon(clusterName=cluster, addonName=name)["addon"]


def _addon(found: Mapping[str, Any]) -> AddOn:
    return AddOn(
        version=found["addonVersion"],
        status=found["status"],
        stack=found.get("tags", {}).get(STACK_TAG, ""),
        role=found.get("serviceAccountRoleArn", ""),
    )


class _Association(NamedTuple):
    """A Pod Identity association.

    Attributes:
        account: its service account.
        id: its ID.
        role: ARN of its role.
        stack: the tag `stack`; empty without one.
        addon: add-on that EKS keeps it for; empty without one.
    """

    account: ServiceAccount
    id: str
    role: str
    stack: str
    addon: str

    def is_of(self, stack: str, addons: Mapping[str, AddOn]) -> bool:
        """Whether the stack with this tag has made it, or the add-on that it is for."""
        return stack in {self.stack, addons[self.addon].stack if self.addon in addons else ""}


def _own_accounts(settings: StackSettings) -> frozenset[ServiceAccount]:
    """Service accounts that the stack gives a role, now or with another setting."""
    cluster = settings.cluster
    foreign = {account for driver in cluster.foreign_drivers for account in DRIVER_ACCOUNTS[driver]}
    platform = {account for accounts in PLATFORM_ACCOUNTS.values() for account in accounts} - foreign
    cni = {CNI_ACCOUNT} if cluster.installs("vpc-cni") else set()
    return frozenset({*platform, *cni, *(trainer_account(team.name) for team in settings.teams)})


def _associations(eks: Client, cluster: str, accounts: AbstractSet[ServiceAccount]) -> Iterator[_Association]:
    for page in eks.get_paginator("list_pod_identity_associations").paginate(clusterName=cluster):
        for one in page["associations"]:
            account, id_ = ServiceAccount(one["namespace"], one["serviceAccount"]), one["associationId"]
            if account in accounts:
                found = eks.describe_pod_identity_association(clusterName=cluster, associationId=id_)["association"]
                # ARN:…:addon/CLUSTER/ADD-ON/UUID
                addon = found.get("ownerArn", "").partition(":addon/")[2].split("/")
                tag = found.get("tags", {}).get(STACK_TAG, "")
                yield _Association(account, id_, found["roleArn"], tag, addon[1] if len(addon) > 1 else "")


def _roles(driver: Driver, addons: Mapping[str, AddOn], associations: Iterable[_Association]) -> Iterator[str]:
    """By IAM roles for service accounts, and by Pod Identity."""
    if driver in addons and addons[driver].role:
        yield addons[driver].role
    yield from (one.role for one in associations if one.account in DRIVER_ACCOUNTS[driver])


def _known_groups(ec2: Client, vpc_id: str, ids: Sequence[str]) -> Iterator[str]:
    if ids:
        filters = {"vpc-id": [vpc_id], "group-id": [*ids]}
        yield from (one["GroupId"] for one in pages(ec2, "describe_security_groups", "SecurityGroups", filters))


def _admitted(ec2: Client, group: str, stack: str) -> Iterator[str]:
    """Whom rules for port 443 alone admit: EC2 refuses a second rule for the same ports and source, whatever its description."""
    for rule in pages(ec2, "describe_security_group_rules", "SecurityGroupRules", {"group-id": [group]}):
        ports = rule.get("IpProtocol"), rule.get("FromPort"), rule.get("ToPort")
        if not rule["IsEgress"] and ports == ("tcp", 443, 443) and tags_of(rule).get(STACK_TAG) != stack:
            yield rule.get("CidrIpv4") or rule.get("ReferencedGroupInfo", {}).get("GroupId", "")


def _foreign_entries(eks: Client, cluster: str, principals: Iterable[str], stack: str) -> Iterator[str]:
    for role in dict.fromkeys(principals):
        try:
            entry = eks.describe_access_entry(clusterName=cluster, principalArn=role)["accessEntry"]
        except eks.exceptions.ResourceNotFoundException:
            continue
        if entry.get("tags", {}).get(STACK_TAG) != stack:
            yield role


def _stacks(eks: Client, cluster: str) -> Iterator[str]:
    for page in eks.get_paginator("list_nodegroups").paginate(clusterName=cluster):
        for name in page["nodegroups"]:
            group = eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]
            if tag := group.get("tags", {}).get(STACK_TAG):
                yield tag


def _ranges(ec2: Client, subnet_ids: list[str]) -> Iterator[str]:
    for one in pages(ec2, "describe_subnets", "Subnets", {"subnet-id": subnet_ids}):
        yield one["CidrBlock"]


def _groups_of_nodes(ec2: Client, cluster: str) -> Iterator[frozenset[str]]:
    """Security groups of running nodes, which EKS and others tag with the cluster's name; without those of a stack of ours."""
    filters = {"tag-key": [f"kubernetes.io/cluster/{cluster}"], "instance-state-name": ["running"]}
    for reservation in pages(ec2, "describe_instances", "Reservations", filters):
        for instance in reservation["Instances"]:
            if not tags_of(instance).get(STACK_TAG, "").startswith(f"{PROJECT}/"):
                yield frozenset(group["GroupId"] for group in instance["SecurityGroups"])
