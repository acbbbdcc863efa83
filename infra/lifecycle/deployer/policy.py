"""The policies of the deployer, from the recorded graph and the permission tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from infra.aws.iam import Condition, Statement
from infra.lifecycle.access.tunnel import DOCUMENT as TUNNEL_DOCUMENT
from infra.lifecycle.capacity.permissions import ACTIONS as FIND_CAPACITY
from infra.lifecycle.deployer.existing import existing_statements, own_parts_only
from infra.lifecycle.deployer.grants import Grant, Scope, actions, physical_name, tagged_new
from infra.lifecycle.deployer.network import NETWORK, TAGS, create_actions
from infra.lifecycle.deployer.services import ROLES, SERVICES
from infra.lifecycle.stack.state_bucket import state_bucket_name
from infra.preview.recording import Recording, Resource
from infra.spec.names import STACK_TAG, cluster_name, name_prefix, stack_tag
from infra.spec.settings import StackSettings

MAX_CHARACTERS = 6_144
"""Limit of a managed policy, without white space (IAM user guide, "IAM and AWS STS quotas")."""

TABLE = {**NETWORK, **SERVICES}
"""Grants by type of resource."""

_ALSO_PASSED_TO: Mapping[str, tuple[str, ...]] = {
    "ec2.amazonaws.com": ("eks.amazonaws.com",),
    "pods.eks.amazonaws.com": ("eks.amazonaws.com",),
    "monitoring.rds.amazonaws.com": ("rds.amazonaws.com",),
}
"""Services that take a role for the service that assumes it: EKS for nodes and pods, RDS for its monitoring."""

_CNI_TAG = "cluster.k8s.amazonaws.com/name"
"""Tag with the cluster's name that the VPC CNI gives the interfaces that it makes (amazon-vpc-cni-k8s, README, `CLUSTER_NAME`)."""

_GROUP_TAG = "eks:cluster-name"
"""Tag with the cluster's name that EKS gives the Auto Scaling group of a node group (EKS user guide, "Managed node groups")."""

_LINK = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
_LINK_SERVICE = "s3.data-source.lustre.fsx.amazonaws.com"

_SERVICE_LINKED: Mapping[str, tuple[str, ...]] = {
    "aws:eks/cluster:Cluster": ("eks.amazonaws.com",),
    "aws:eks/nodeGroup:NodeGroup": ("eks-nodegroup.amazonaws.com", "autoscaling.amazonaws.com", "spot.amazonaws.com"),
    "aws:rds/instance:Instance": ("rds.amazonaws.com",),
    "aws:efs/fileSystem:FileSystem": ("elasticfilesystem.amazonaws.com",),
    "aws:efs/backupPolicy:BackupPolicy": ("backup.amazonaws.com",),
    "aws:fsx/lustreFileSystem:LustreFileSystem": ("fsx.amazonaws.com",),
    _LINK: (_LINK_SERVICE,),
    "aws:ecr/pullThroughCacheRule:PullThroughCacheRule": ("pullthroughcache.ecr.amazonaws.com",),
}
"""Services that make their service-linked role in an account that has none, by the type that needs it."""


class Policy(NamedTuple):
    """A managed policy.

    Attributes:
        name: its name.
        document: the policy document.
    """

    name: str
    document: dict[str, Any]

    @property
    def size(self) -> int:
        """Characters that count against `MAX_CHARACTERS`."""
        return _size(self.document)


def deployer_policies(settings: StackSettings, recording: Recording) -> tuple[Policy, ...]:
    """The managed policies that together let a role bring an environment up, change and destroy it.

    Args:
        settings: the environment.
        recording: its recorded graph.

    Raises:
        ValueError: the graph has a type without permissions.
    """
    builder = _Builder(settings, recording)
    documents = _packed([*builder.granted(), *builder.special()])
    name = f"{name_prefix(settings)}-deployer"
    return tuple(Policy(f"{name}-{number}", document) for number, document in enumerate(documents, start=1))


class _Builder:
    """Makes the statements of one environment."""

    def __init__(self, settings: StackSettings, recording: Recording) -> None:
        self._settings = settings
        self._recording = recording
        self._region = settings.aws.region
        self._account = settings.aws.allowed_accounts[0]
        self._cluster = cluster_name(settings)
        self._stack = stack_tag(settings)
        self._by_type: dict[str, list[Resource]] = {}
        for resource in recording.resources:
            if resource.type.startswith("aws:"):
                self._by_type.setdefault(resource.type, []).append(resource)
        missing = sorted(set(self._by_type) - set(TABLE))
        if missing:
            raise ValueError(f"no permissions for {', '.join(missing)}: add a row in infra/lifecycle/deployer")

    def granted(self) -> Iterator[Statement]:
        """One statement for all actions with the same resources and limits."""
        merged: dict[tuple[Scope, tuple[str, ...]], dict[str, None]] = {}
        for type_ in self._by_type:
            for grant in map(self._limited, TABLE[type_]):
                key = grant.scope, self._arns(grant.resources, grant.names_of or type_)
                merged.setdefault(key, {}).update(dict.fromkeys(grant.actions))
        for grant in TAGS:
            merged.setdefault((grant.scope, self._arns(grant.resources, "")), {}).update(dict.fromkeys(grant.actions))
        for number, ((scope, resources), names) in enumerate(merged.items(), start=1):
            yield self._statement(f"{scope.name.title()}{number}", sorted(names), resources, self._limits(scope))

    def _limited(self, grant: Grant) -> Grant:
        return own_parts_only(grant) if self._settings.cluster.is_shared else grant

    def special(self) -> Iterator[Statement]:
        """Permissions that belong to no single type, or that need limits of their own."""
        yield self._tags_at_creation()
        yield from self._nodes()
        yield from self._passed_roles()
        yield from self._attached_policies()
        yield from self._service_linked_roles()
        yield from self._linked_buckets()
        yield from self._keys()
        yield from self._forced_deletion()
        yield from self._commands()
        yield from self._teardown()
        yield from self._image_pushes()
        yield from self._tunnel()
        yield from existing_statements(self._settings, self._recording, account=self._account)

    def _tags_at_creation(self) -> Statement:
        made = sorted((*create_actions(self._by_type), "RunInstances"))
        limits = {**self._limits(Scope.NEW)["StringEquals"], "ec2:CreateAction": made}
        return self._statement("TagNewResources", ["ec2:CreateTags"], [self._ec2("*")], {"StringEquals": limits})

    def _nodes(self) -> Iterator[Statement]:
        """EKS checks that its caller may launch from the template (EKS user guide, "Launch templates")."""
        if "aws:eks/nodeGroup:NodeGroup" in self._by_type:
            limits: Condition = {
                "ArnLike": {"ec2:LaunchTemplate": self._ec2("launch-template")},
                **self._limits(Scope.REGION),
            }
            yield self._statement("LaunchNodes", ["ec2:RunInstances"], ["*"], limits)

    def _passed_roles(self) -> Iterator[Statement]:
        roles: dict[str, list[str]] = {}
        for role in self._by_type.get("aws:iam/role:Role", ()):
            for service in _trusted_services(role):
                roles.setdefault(service, []).extend(self._role(role))
        for number, (service, arns) in enumerate(sorted(roles.items()), start=1):
            passed = [service, *_ALSO_PASSED_TO.get(service, ())]
            limits = {"StringEquals": {"iam:PassedToService": passed}}
            yield self._statement(f"PassRoles{number}", ["iam:PassRole"], arns, limits)

    def _attached_policies(self) -> Iterator[Statement]:
        attachments = self._by_type.get("aws:iam/rolePolicyAttachment:RolePolicyAttachment", ())
        policies = sorted({str(one.properties["policyArn"]) for one in attachments})
        if policies:
            names = ["iam:AttachRolePolicy", "iam:DetachRolePolicy"]
            limits: Condition = {"ArnEquals": {"iam:PolicyARN": policies}, **self._limits(Scope.OURS)}
            yield self._statement("AttachPolicies", names, self._arns(ROLES, "aws:iam/role:Role"), limits)

    def _service_linked_roles(self) -> Iterator[Statement]:
        services = sorted({one for type_, names in _SERVICE_LINKED.items() if type_ in self._by_type for one in names})
        if services:
            arn = f"arn:aws:iam::{self._account}:role/aws-service-role/*"
            yield self._statement("ReadServiceRoles", ["iam:GetRole"], [arn], None)
            limits = {"StringEquals": {"iam:AWSServiceName": services}}
            yield self._statement("MakeServiceRoles", ["iam:CreateServiceLinkedRole"], [arn], limits)

    def _linked_buckets(self) -> Iterator[Statement]:
        """FSx makes a role for each linked file system, with its caller's rights; the preflight looks for the bucket.

        Source: FSx for Lustre user guide, "Adding permissions to use data repositories in Amazon S3".
        """
        links = self._by_type.get(_LINK, ())
        if links:
            role = f"arn:aws:iam::{self._account}:role/aws-service-role/{_LINK_SERVICE}/*"
            yield self._statement("LinkBuckets", ["iam:AttachRolePolicy", "iam:PutRolePolicy"], [role], None)
            paths = [str(one.properties["dataRepositoryPath"]) for one in links]
            arns = sorted({f"arn:aws:s3:::{path.removeprefix('s3://').partition('/')[0]}" for path in paths})
            yield self._statement("FindLinkedBuckets", ["s3:ListBucket"], arns, None)

    def _keys(self) -> Iterator[Statement]:
        """Services encrypt with the stack's keys on behalf of the caller that makes their resource."""
        if "aws:kms/key:Key" not in self._by_type:
            return
        arn, tagged = f"arn:aws:kms:{self._region}:{self._account}:key/*", self._limits(Scope.OURS)
        grants: Condition = {**tagged, "Bool": {"kms:GrantIsForAWSResource": "true"}}
        yield self._statement("GrantKeysToServices", ["kms:CreateGrant"], [arn], grants)
        use = actions("kms", "Decrypt GenerateDataKey GenerateDataKeyWithoutPlaintext")
        limits: Condition = {**tagged, "StringLike": {"kms:ViaService": f"*.{self._region}.amazonaws.com"}}
        yield self._statement("UseKeysThroughServices", use, [arn], limits)

    def _forced_deletion(self) -> Iterator[Statement]:
        """The content of stores that are destroyed with it: those of test clusters."""
        buckets = [one for one in self._by_type.get("aws:s3/bucket:Bucket", ()) if one.properties.get("forceDestroy")]
        if buckets:
            arns = [f"arn:aws:s3:::{physical_name(one)}/*" for one in buckets]
            yield self._statement("EmptyBuckets", ["s3:DeleteObject", "s3:DeleteObjectVersion"], arns, None)
        stores = [
            one for one in self._by_type.get("aws:ecr/repository:Repository", ()) if one.properties.get("forceDelete")
        ]
        if stores:
            arns = [f"arn:aws:ecr:{self._region}:{self._account}:repository/{physical_name(one)}" for one in stores]
            yield self._statement("EmptyRepositories", ["ecr:BatchDeleteImage", "ecr:ListImages"], arns, None)

    def _commands(self) -> Iterator[Statement]:
        """Pulumi's state, and what the commands read.

        The preflight, `capacity`, `release-lock` and `prices` are the commands; `sts:GetCallerIdentity` needs no permission.
        """
        checks = actions("servicequotas", "GetServiceQuota GetAWSDefaultServiceQuota")
        checks += actions("ec2", "DescribeInstanceTypeOfferings DescribeInstanceTypes DescribeCapacityReservations")
        checks += actions("ec2", "DescribeInstances DescribeAvailabilityZones DescribeSecurityGroups")
        checks = tuple(dict.fromkeys((*checks, *FIND_CAPACITY)))
        state = f"arn:aws:s3:::{state_bucket_name(self._settings, account=self._account)}"
        yield self._statement("FindState", ["s3:ListBucket"], [state], None)
        objects = actions("s3", "GetObject PutObject DeleteObject")
        yield self._statement("ReadAndWriteState", objects, [f"{state}/*"], None)
        yield self._statement("Preflight", checks, ["*"], self._limits(Scope.REGION))
        amis = "arn:aws:ssm:*::parameter/aws/service/eks/optimized-ami/*"
        yield self._statement("ReadAmiReleases", ["ssm:GetParameter"], [amis], None)
        # The Price List API has endpoints in a few regions only, whatever region it is asked about.
        yield self._statement("ReadPrices", ["pricing:GetProducts"], ["*"], None)

    def _teardown(self) -> Iterator[Statement]:
        """`down` deletes network interfaces that nodes have left; its audit needs a policy of its own, because it only reads."""
        reads = actions("ec2", "DescribeNetworkInterfaces DescribeSecurityGroups DescribeVpcs")
        yield self._statement("FindInterfaces", reads, ["*"], self._limits(Scope.REGION))
        delete, interfaces = actions("ec2", "DeleteNetworkInterface"), [self._ec2("network-interface")]
        yield self._statement("DeleteOwnInterfaces", delete, interfaces, self._limits(Scope.OURS))
        if not self._settings.cluster.is_shared:
            of_cluster = {"StringEquals": {f"aws:ResourceTag/{_CNI_TAG}": self._cluster}}
            yield self._statement("DeleteInterfacesOfPods", delete, interfaces, of_cluster)

    def _image_pushes(self) -> Iterator[Statement]:
        """`up` pushes the images that the registry lacks (Amazon ECR user guide, "IAM permissions for pushing an image")."""
        names = sorted(map(physical_name, self._by_type.get("aws:ecr/repository:Repository", ())))
        if names:
            push = "BatchCheckLayerAvailability BatchGetImage CompleteLayerUpload DescribeImages GetDownloadUrlForLayer"
            push += " InitiateLayerUpload PutImage UploadLayerPart"
            arns = [f"arn:aws:ecr:{self._region}:{self._account}:repository/{name}" for name in names]
            yield self._statement("PushImages", actions("ecr", push), arns, None)
            yield self._statement("SignInToRegistry", ["ecr:GetAuthorizationToken"], ["*"], self._limits(Scope.REGION))

    def _tunnel(self) -> Iterator[Statement]:
        """A session with a node that forwards a port to the private API server."""
        document = f"arn:aws:ssm:{self._region}::document/{TUNNEL_DOCUMENT}"
        tagged = {"StringEquals": {f"ssm:resourceTag/{STACK_TAG}": self._stack}}
        yield self._statement("OpenTunnel", ["ssm:StartSession"], [self._ec2("instance")], tagged)
        yield self._statement("ForwardPort", ["ssm:StartSession"], [document], None)
        # A role has no `aws:username` (Systems Manager user guide, "Allow a user to end only sessions they started").
        own: Condition = {"StringEquals": {"ssm:resourceTag/aws:ssmmessages:session-id": "${aws:userid}"}}
        sessions = f"arn:aws:ssm:{self._region}:{self._account}:session/*"
        yield self._statement("EndOwnSession", ["ssm:TerminateSession"], [sessions], own)

    def _limits(self, scope: Scope) -> dict[str, Mapping[str, Any]]:
        match scope:
            case Scope.REGION:
                return {"StringEquals": {"aws:RequestedRegion": self._region}}
            case Scope.NEW:
                return tagged_new(self._stack)
            case Scope.OURS:
                return {"StringEquals": {f"aws:ResourceTag/{STACK_TAG}": self._stack}}
            case Scope.CLUSTER:
                return {"StringEquals": {f"aws:ResourceTag/{_GROUP_TAG}": self._cluster}}
            case Scope.ADOPTED:
                return {"StringEqualsIfExists": {f"aws:ResourceTag/{STACK_TAG}": self._stack}}
            case Scope.NAMED:
                return {}

    def _arns(self, templates: Sequence[str], type_: str) -> tuple[str, ...]:
        """The ARNs of templates, with the name of each resource of a type."""
        places = {
            "region": self._region,
            "account": self._account,
            "cluster": self._cluster,
            "prefix": name_prefix(self._settings),
        }
        names = sorted({physical_name(one) for one in self._by_type.get(type_, ())}) or [""]
        arns = (template.format(name=name, **places) for template in templates for name in names)
        return tuple(dict.fromkeys(arns))

    def _role(self, role: Resource) -> Iterator[str]:
        """The ARNs that it may have: with the environment's path, and without one, of an older release."""
        for path in (role.properties["path"], "/"):
            yield f"arn:aws:iam::{self._account}:role{path}{physical_name(role)}"

    def _ec2(self, type_: str) -> str:
        return f"arn:aws:ec2:{self._region}:{self._account}:{type_}/*"

    def _statement(
        self, sid: str, names: Iterable[str], resources: Iterable[str], condition: Condition | None
    ) -> Statement:
        return Statement(sid=sid, actions=tuple(names), resources=tuple(resources), condition=condition or None)


def _trusted_services(role: Resource) -> Iterator[str]:
    for statement in json.loads(role.properties["assumeRolePolicy"])["Statement"]:
        services = statement["Principal"]["Service"]
        yield from [services] if isinstance(services, str) else services


def _packed(statements: Iterable[Statement]) -> list[dict[str, Any]]:
    """The statements in as few documents as they fit into in order, each below the limit."""
    documents: list[dict[str, Any]] = []
    for statement in statements:
        element = statement.document()
        if not documents or _size(_document([*documents[-1]["Statement"], element])) > MAX_CHARACTERS:
            documents.append(_document([]))
        documents[-1]["Statement"].append(element)
    return documents


def _document(statements: list[dict[str, Any]]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": statements}


def _size(document: Mapping[str, Any]) -> int:
    return len(json.dumps(document, separators=(",", ":")))
