"""What AWS and Kubernetes would answer to a creation: ids and ARNs of the real form, the same at every recording."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

Properties = Mapping[str, Any]


class _Call(NamedTuple):
    """One created resource, as the functions below look at it."""

    id: str
    inputs: Properties
    account: str
    region: str

    def arn(self, service: str, resource: str, *, is_global: bool = False) -> str:
        """The ARN of something in the account; IAM's and S3's have no region."""
        return f"arn:aws:{service}:{'' if is_global else self.region}:{self.account}:{resource}"


_PREFIXES = {
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
}
"""Ids that AWS makes up: prefix and 17 hexadecimal digits."""

_NAMES = ("name", "bucket", "identifier", "repositoryName", "nodeGroupName", "ruleName")
"""Inputs that are the id where they are given."""


def physical_id(type_: str, name: str, inputs: Properties) -> str:
    """The id the provider would return for a resource of this type, logical name and inputs."""
    digest = sha256(f"{type_}::{name}".encode()).hexdigest()
    if type_ in _PREFIXES:
        return f"{_PREFIXES[type_]}-{digest[:17]}"
    if type_ == "aws:kms/key:Key":
        return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"
    if type_.startswith("kubernetes:") and "metadata" in inputs:
        metadata = inputs["metadata"]
        return "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)
    given = next((inputs[key] for key in _NAMES if isinstance(inputs.get(key), str)), None)
    return given or f"{name}-{digest[:7]}"


def _cluster(call: _Call) -> dict[str, Any]:
    return {
        "arn": call.arn("eks", f"cluster/{call.id}"),
        "endpoint": f"https://{sha256(call.id.encode()).hexdigest()[:32].upper()}.gr7.{call.region}.eks.amazonaws.com",
        "certificateAuthority": {"data": "bW9jayBjZXJ0aWZpY2F0ZQ=="},
        "vpcConfig": {"clusterSecurityGroupId": "sg-0c1a57e40000000aa"},
        "platformVersion": "eks.1",
        "status": "ACTIVE",
    }


def _node_group(call: _Call) -> dict[str, Any]:
    return {
        "arn": call.arn(
            "eks", f"nodegroup/{call.inputs['clusterName']}/{call.id}/00000000-0000-4000-8000-000000000000"
        ),
        "nodeGroupName": call.id,
        "resources": [{"autoscalingGroups": [{"name": f"eks-{call.id}-00000000"}]}],
        "status": "ACTIVE",
    }


def _database(call: _Call) -> dict[str, Any]:
    host = f"{call.id}.c0123456789a.{call.region}.rds.amazonaws.com"
    secret = call.arn("secretsmanager", f"secret:rds!db-{sha256(call.id.encode()).hexdigest()[:8]}-a1b2c3")
    return {
        "arn": call.arn("rds", f"db:{call.id}"),
        "address": host,
        "endpoint": f"{host}:5432",
        "port": 5432,
        "masterUserSecrets": [{"secretArn": secret, "secretStatus": "active", "kmsKeyId": ""}],
    }


def _bucket(call: _Call) -> dict[str, Any]:
    return {
        "arn": f"arn:aws:s3:::{call.id}",
        "bucket": call.id,
        "bucketRegionalDomainName": f"{call.id}.s3.{call.region}.amazonaws.com",
    }


def _repository(call: _Call) -> dict[str, Any]:
    host = f"{call.account}.dkr.ecr.{call.region}.amazonaws.com"
    return {"arn": call.arn("ecr", f"repository/{call.id}"), "repositoryUrl": f"{host}/{call.id}"}


def _key(call: _Call) -> dict[str, Any]:
    return {"arn": call.arn("kms", f"key/{call.id}"), "keyId": call.id}


_COMPUTED: dict[str, Callable[[_Call], dict[str, Any]]] = {
    "aws:eks/cluster:Cluster": _cluster,
    "aws:eks/nodeGroup:NodeGroup": _node_group,
    "aws:rds/instance:Instance": _database,
    "aws:s3/bucket:Bucket": _bucket,
    "aws:ecr/repository:Repository": _repository,
    "aws:kms/key:Key": _key,
    "aws:iam/role:Role": lambda call: {"arn": call.arn("iam", f"role/{call.id}", is_global=True), "name": call.id},
    "aws:cloudwatch/logGroup:LogGroup": lambda call: {"arn": call.arn("logs", f"log-group:{call.id}")},
    "aws:ec2/launchTemplate:LaunchTemplate": lambda call: {"latestVersion": 1, "name": call.id},
    "aws:ec2/placementGroup:PlacementGroup": lambda call: {"name": call.id},
    "aws:ec2/vpc:Vpc": lambda call: {"arn": call.arn("ec2", f"vpc/{call.id}"), "defaultSecurityGroupId": "sg-0defa017"},
    "aws:efs/fileSystem:FileSystem": lambda call: {"arn": call.arn("elasticfilesystem", f"file-system/{call.id}")},
    "aws:efs/accessPoint:AccessPoint": lambda call: {"arn": call.arn("elasticfilesystem", f"access-point/{call.id}")},
    "aws:rds/subnetGroup:SubnetGroup": lambda call: {"name": call.id},
    "aws:sns/topic:Topic": lambda call: {"arn": call.arn("sns", call.id)},
    "aws:rds/parameterGroup:ParameterGroup": lambda call: {"name": call.id},
}


def computed(type_: str, id_: str, inputs: Properties, *, account: str, region: str) -> dict[str, Any]:
    """Outputs the provider would compute, beside the inputs, which it repeats; none for a type not listed above."""
    answer = _COMPUTED.get(type_)
    return answer(_Call(id_, inputs, account, region)) if answer else {}


def call_result(token: str, *, account: str, region: str) -> dict[str, Any]:
    """What a provider function would return.

    Raises:
        ValueError: the program calls a function that is not known here.
    """
    if token == "aws:index/getCallerIdentity:getCallerIdentity":  # noqa: S105  # a Pulumi token
        user = f"arn:aws:iam::{account}:user/recorder"
        return {"accountId": account, "arn": user, "userId": "AIDARECORDER", "id": account, "region": region}
    raise ValueError(f"the recorder knows no function {token}: add its answer to infra/preview/recorded_outputs.py")
