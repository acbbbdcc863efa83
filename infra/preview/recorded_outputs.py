"""IDs and computed values that AWS and Kubernetes would return, in the real format and deterministic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

Properties = Mapping[str, Any]


class _Created(NamedTuple):
    """A resource that the provider has just created."""

    id: str
    inputs: Properties
    account: str
    region: str

    def arn(self, service: str, resource: str, *, is_global: bool = False) -> str:
        """An ARN in the account; global ones, such as IAM's, have no region."""
        return f"arn:aws:{service}:{'' if is_global else self.region}:{self.account}:{resource}"


_ID_PREFIXES = {
    "aws:ec2/vpc:Vpc": "vpc",
    "aws:ec2/subnet:Subnet": "subnet",
    "aws:ec2/internetGateway:InternetGateway": "igw",
    "aws:ec2/eip:Eip": "eipalloc",
    "aws:ec2/natGateway:NatGateway": "nat",
    "aws:ec2/routeTable:RouteTable": "rtb",
    "aws:ec2/route:Route": "r-rtb",
    "aws:ec2/routeTableAssociation:RouteTableAssociation": "rtbassoc",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "vpce",
    "aws:ec2/flowLog:FlowLog": "fl",
    "aws:ec2/securityGroup:SecurityGroup": "sg",
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": "sg",
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": "sgr",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": "sgr",
    "aws:ec2/launchTemplate:LaunchTemplate": "lt",
    "aws:efs/fileSystem:FileSystem": "fs",
    "aws:efs/accessPoint:AccessPoint": "fsap",
    "aws:efs/mountTarget:MountTarget": "fsmt",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "fs",
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": "dra",
}
"""Prefix of generated IDs, which have 17 hexadecimal digits."""

_ID_INPUTS = ("name", "bucket", "identifier", "repositoryName", "nodeGroupName", "ruleName")
"""Inputs that become the ID, if given."""


def physical_id(type_: str, name: str, inputs: Properties) -> str:
    """The ID that the provider would return for a resource of this type, logical name and inputs."""
    digest = sha256(f"{type_}::{name}".encode()).hexdigest()
    if type_ in _ID_PREFIXES:
        return f"{_ID_PREFIXES[type_]}-{digest[:17]}"
    if type_ == "aws:kms/key:Key":
        return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"
    if type_.startswith("kubernetes:") and "metadata" in inputs:
        metadata = inputs["metadata"]
        return "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)
    given = next((inputs[key] for key in _ID_INPUTS if isinstance(inputs.get(key), str)), None)
    return given or f"{name}-{digest[:7]}"


def _cluster(new: _Created) -> dict[str, Any]:
    return {
        "arn": new.arn("eks", f"cluster/{new.id}"),
        "endpoint": f"https://{sha256(new.id.encode()).hexdigest()[:32].upper()}.gr7.{new.region}.eks.amazonaws.com",
        "certificateAuthority": {"data": "bW9jayBjZXJ0aWZpY2F0ZQ=="},
        "vpcConfig": {"clusterSecurityGroupId": "sg-0c1a57e40000000aa"},
        "platformVersion": "eks.1",
        "status": "ACTIVE",
    }


def _node_group(new: _Created) -> dict[str, Any]:
    return {
        "arn": new.arn("eks", f"nodegroup/{new.inputs['clusterName']}/{new.id}/00000000-0000-4000-8000-000000000000"),
        "nodeGroupName": new.id,
        "resources": [{"autoscalingGroups": [{"name": f"eks-{new.id}-00000000"}]}],
        "status": "ACTIVE",
    }


def _database(new: _Created) -> dict[str, Any]:
    host = f"{new.id}.c0123456789a.{new.region}.rds.amazonaws.com"
    secret = new.arn("secretsmanager", f"secret:rds!db-{sha256(new.id.encode()).hexdigest()[:8]}-a1b2c3")
    return {
        "arn": new.arn("rds", f"db:{new.id}"),
        "address": host,
        "endpoint": f"{host}:5432",
        "port": 5432,
        "masterUserSecrets": [{"secretArn": secret, "secretStatus": "active", "kmsKeyId": ""}],
    }


def _lustre(new: _Created) -> dict[str, Any]:
    return {
        "arn": new.arn("fsx", f"file-system/{new.id}"),
        "dnsName": f"{new.id}.fsx.{new.region}.amazonaws.com",
        "mountName": sha256(new.id.encode()).hexdigest()[:8],
    }


def _bucket(new: _Created) -> dict[str, Any]:
    return {
        "arn": f"arn:aws:s3:::{new.id}",
        "bucket": new.id,
        "bucketRegionalDomainName": f"{new.id}.s3.{new.region}.amazonaws.com",
    }


def _repository(new: _Created) -> dict[str, Any]:
    host = f"{new.account}.dkr.ecr.{new.region}.amazonaws.com"
    return {"arn": new.arn("ecr", f"repository/{new.id}"), "repositoryUrl": f"{host}/{new.id}"}


def _key(new: _Created) -> dict[str, Any]:
    return {"arn": new.arn("kms", f"key/{new.id}"), "keyId": new.id}


_COMPUTED: dict[str, Callable[[_Created], dict[str, Any]]] = {
    "aws:eks/cluster:Cluster": _cluster,
    "aws:eks/nodeGroup:NodeGroup": _node_group,
    "aws:rds/instance:Instance": _database,
    "aws:s3/bucket:Bucket": _bucket,
    "aws:ecr/repository:Repository": _repository,
    "aws:kms/key:Key": _key,
    "aws:iam/role:Role": lambda new: {
        "arn": new.arn("iam", f"role{new.inputs['path']}{new.id}", is_global=True),
        "name": new.id,
    },
    "aws:cloudwatch/logGroup:LogGroup": lambda new: {"arn": new.arn("logs", f"log-group:{new.id}")},
    "aws:ec2/launchTemplate:LaunchTemplate": lambda new: {"latestVersion": 1, "name": new.id},
    "aws:ec2/placementGroup:PlacementGroup": lambda new: {"name": new.id},
    "aws:ec2/vpc:Vpc": lambda new: {"arn": new.arn("ec2", f"vpc/{new.id}"), "defaultSecurityGroupId": "sg-0defa017"},
    "aws:efs/fileSystem:FileSystem": lambda new: {"arn": new.arn("elasticfilesystem", f"file-system/{new.id}")},
    "aws:efs/accessPoint:AccessPoint": lambda new: {"arn": new.arn("elasticfilesystem", f"access-point/{new.id}")},
    "aws:fsx/lustreFileSystem:LustreFileSystem": _lustre,
    "aws:rds/subnetGroup:SubnetGroup": lambda new: {"name": new.id},
    "aws:sns/topic:Topic": lambda new: {"arn": new.arn("sns", new.id)},
    "aws:rds/parameterGroup:ParameterGroup": lambda new: {"name": new.id},
}


def computed(type_: str, id_: str, inputs: Properties, *, account: str, region: str) -> dict[str, Any]:
    """Outputs that the provider would compute in addition to the inputs; none for a type not listed above."""
    compute = _COMPUTED.get(type_)
    return compute(_Created(id_, inputs, account, region)) if compute else {}


def call_result(token: str, inputs: Properties, *, account: str, region: str) -> dict[str, Any]:
    """The result of a provider function called with these inputs.

    Raises:
        ValueError: the function has no recorded result.
    """
    if token == "aws:index/getCallerIdentity:getCallerIdentity":  # noqa: S105  # a Pulumi token
        user = f"arn:aws:iam::{account}:user/recorder"
        return {"accountId": account, "arn": user, "userId": "AIDARECORDER", "id": account, "region": region}
    if token == "aws:eks/getCluster:getCluster":  # noqa: S105  # a Pulumi token
        name = str(inputs["name"])
        found = _cluster(_Created(name, inputs, account, region))
        return {**found, "id": name, "name": name, "certificateAuthorities": [found["certificateAuthority"]]}
    raise ValueError(f"unknown provider function {token}; add its result to infra/preview/recorded_outputs.py")
