"""What the double of the AWS provider knows about resource types: names, IDs, replacements and computed outputs.

Sources: the provider's documentation of each resource, for inputs that force a replacement and for the form of IDs. Types that
are not listed have no fixed name, are never replaced, and get an ARN as their only computed output.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Properties = dict[str, Any]

REPLACING: Mapping[str, frozenset[str]] = {
    name: frozenset(inputs.split())
    for name, inputs in {
        "autoscaling/tag": "autoscalingGroupName",
        "cloudwatch/logGroup": "name",
        "ec2/eip": "domain",
        "ec2/flowLog": "vpcId logDestination trafficType iamRoleArn maxAggregationInterval",
        "ec2/launchTemplate": "name",
        "ec2/natGateway": "subnetId allocationId",
        "ec2/placementGroup": "name strategy",
        "ec2/route": "destinationCidrBlock routeTableId",
        "ec2/routeTable": "vpcId",
        "ec2/routeTableAssociation": "subnetId",
        "ec2/securityGroup": "name description vpcId",
        "ec2/subnet": "cidrBlock availabilityZone vpcId",
        "ec2/vpc": "cidrBlock",
        "ec2/vpcEndpoint": "serviceName vpcId vpcEndpointType",
        "ecr/repository": "name encryptionConfigurations",
        "efs/accessPoint": "fileSystemId posixUser rootDirectory",
        "efs/fileSystem": "encrypted kmsKeyId performanceMode",
        "efs/mountTarget": "fileSystemId subnetId",
        "eks/accessEntry": "clusterName principalArn type",
        "eks/accessPolicyAssociation": "clusterName principalArn policyArn accessScope",
        "eks/addon": "clusterName addonName",
        "eks/cluster": "name roleArn bootstrapSelfManagedAddons kubernetesNetworkConfig",
        "eks/nodeGroup": "clusterName nodeGroupName instanceTypes amiType capacityType subnetIds nodeRoleArn",
        "eks/podIdentityAssociation": "clusterName namespace serviceAccount",
        "iam/role": "name path",
        "iam/rolePolicy": "role name",
        "iam/rolePolicyAttachment": "role policyArn",
        "kms/alias": "name",
        "rds/instance": "engine storageEncrypted kmsKeyId username dbName",
        "rds/parameterGroup": "name family",
        "rds/subnetGroup": "name",
        "s3/bucket": "bucket",
        "sns/topic": "name",
        "vpc/securityGroupEgressRule": "securityGroupId",
        "vpc/securityGroupIngressRule": "securityGroupId",
    }.items()
}
"""Inputs whose change replaces a resource, by type."""

_NAMED = (
    "cloudwatch/logGroup ec2/launchTemplate ec2/placementGroup ec2/securityGroup ecr/repository eks/cluster iam/role "
    "iam/rolePolicy kms/alias rds/parameterGroup rds/subnetGroup sns/topic"
)
NAME_INPUTS: Mapping[str, str] = {
    **dict.fromkeys(_NAMED.split(), "name"),
    "eks/nodeGroup": "nodeGroupName",
    "rds/instance": "identifier",
    "s3/bucket": "bucket",
}
"""The input with the physical name, by type; the provider makes one of the logical name if it is not given."""

_PREFIXED = (
    "ec2/defaultSecurityGroup=sg ec2/eip=eipalloc ec2/flowLog=fl ec2/internetGateway=igw ec2/launchTemplate=lt "
    "ec2/natGateway=nat ec2/routeTable=rtb ec2/securityGroup=sg ec2/subnet=subnet ec2/vpc=vpc ec2/vpcEndpoint=vpce "
    "efs/accessPoint=fsap efs/fileSystem=fs efs/mountTarget=fsmt vpc/securityGroupEgressRule=sgr "
    "vpc/securityGroupIngressRule=sgr"
)
_ID_PREFIXES: Mapping[str, str] = dict(one.split("=") for one in _PREFIXED.split())

CLUSTER_SECURITY_GROUP = "sg-0123456789abcdef0"
"""The security group of a cluster that exists already."""

UNKNOWN_IN_PREVIEW: Mapping[str, tuple[str, ...]] = {
    "eks/cluster": ("endpoint", "certificateAuthority", "vpcConfig.clusterSecurityGroupId"),
    "eks/nodeGroup": ("resources",),
    "rds/instance": ("address", "masterUserSecrets"),
    "ecr/repository": ("repositoryUrl",),
}
"""Computed outputs, besides ID and ARN, that a preview of a creation does not know, by type."""


class Place(NamedTuple):
    """Where resources are."""

    account: str
    region: str
    server: str
    authority: str

    def arn(self, service: str, resource: str) -> str:
        """An ARN in this account and region."""
        return f"arn:aws:{service}:{self.region}:{self.account}:{resource}"


def new_id(kind: str, name: str, inputs: Properties) -> str:
    """The ID of a new resource."""
    if kind in _ID_PREFIXES:
        return f"{_ID_PREFIXES[kind]}-{uuid.uuid4().hex[:17]}"
    if kind.startswith("s3/"):
        return str(inputs["bucket"])
    return str(inputs.get(NAME_INPUTS.get(kind, ""), f"{name}-{uuid.uuid4().hex[:7]}"))


def computed(kind: str, id_: str, inputs: Properties, place: Place) -> Properties:
    """The outputs that AWS computes."""
    service, _, resource = kind.partition("/")
    compute = _COMPUTED.get(kind)
    outputs = compute(id_, inputs, place) if compute else {}
    return {"id": id_, "arn": place.arn(service, f"{resource}/{id_}"), **outputs}


def found_by(function: str, inputs: Properties, place: Place) -> Properties | None:
    """What a function of the provider finds, e.g. aws:eks/getCluster:getCluster; None for a function that nothing here calls."""
    account = place.account
    if function.endswith(":getCallerIdentity"):
        return {"accountId": account, "arn": f"arn:aws:iam::{account}:user/x", "userId": "x", "id": account}
    if function.endswith(":getCluster"):
        name = inputs["name"]
        return {
            "id": name,
            "name": name,
            "arn": place.arn("eks", f"cluster/{name}"),
            "endpoint": place.server,
            "certificateAuthorities": [{"data": place.authority}],
            "vpcConfig": {"clusterSecurityGroupId": CLUSTER_SECURITY_GROUP},
        }
    return None


def _cluster(id_: str, inputs: Properties, place: Place) -> Properties:
    network = {**inputs["vpcConfig"], "clusterSecurityGroupId": f"sg-{uuid.uuid4().hex[:17]}"}
    return {
        "arn": place.arn("eks", f"cluster/{id_}"),
        "endpoint": place.server,
        "certificateAuthority": {"data": place.authority},
        "vpcConfig": network,
    }


def _node_group(id_: str, _: Properties, __: Place) -> Properties:
    return {"resources": [{"autoscalingGroups": [{"name": f"eks-{id_}-{uuid.uuid4().hex[:8]}"}]}]}


def _database(id_: str, _: Properties, place: Place) -> Properties:
    secret = place.arn("secretsmanager", f"secret:rds!db-{uuid.uuid4().hex[:8]}")
    return {
        "arn": place.arn("rds", f"db:{id_}"),
        "address": f"{id_}.c0123456789a.{place.region}.rds.amazonaws.com",
        "masterUserSecrets": [{"secretArn": secret, "secretStatus": "active"}],
    }


def _repository(id_: str, _: Properties, place: Place) -> Properties:
    url = f"{place.account}.dkr.ecr.{place.region}.amazonaws.com/{id_}"
    return {"arn": place.arn("ecr", f"repository/{id_}"), "repositoryUrl": url}


def _bucket(id_: str, _: Properties, place: Place) -> Properties:
    return {"arn": f"arn:aws:s3:::{id_}", "bucketRegionalDomainName": f"{id_}.s3.{place.region}.amazonaws.com"}


_COMPUTED: Mapping[str, Callable[[str, Properties, Place], Properties]] = {
    "cloudwatch/logGroup": lambda id_, _, place: {"arn": place.arn("logs", f"log-group:{id_}")},
    "ec2/launchTemplate": lambda *_: {"latestVersion": 1, "defaultVersion": 1},
    "ecr/repository": _repository,
    "eks/cluster": _cluster,
    "eks/nodeGroup": _node_group,
    "iam/role": lambda id_, _, place: {"arn": f"arn:aws:iam::{place.account}:role/{id_}"},
    "rds/instance": _database,
    "s3/bucket": _bucket,
    "sns/topic": lambda id_, _, place: {"arn": place.arn("sns", id_)},
}
