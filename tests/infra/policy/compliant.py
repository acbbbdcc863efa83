"""A small stack that complies with every rule, and a way to change it."""

from __future__ import annotations

import copy
import json
from base64 import b64encode

from infra.policy import tokens
from infra.policy.graph import Graph, Resource
from tests.infra.spec.samples import Tree, changed

TAGS = {
    "platform": "ray-train-platform",
    "environment": "sample",
    "kind": "prod",
    "owner": "ops@example.com",
    "version": "0.1.0",
    "expires": "2030-01-01T00:00:00Z",
}
KEY_ARN = "arn:aws:kms:us-east-1:111122223333:key/00000000-0000-4000-8000-000000000000"
PLAIN = {"Bool": {"aws:SecureTransport": "false"}}


def document(*statements: Tree) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def statement(effect: str = "Allow", /, **elements: object) -> Tree:
    return {"Sid": "Test", "Effect": effect, **elements}


def trust(principal: object, **elements: object) -> str:
    return document(statement(Action="sts:AssumeRole", Principal=principal, **elements))


def permit(action: object, resource: object, **elements: object) -> str:
    return document(statement(Action=action, Resource=resource, **elements))


DENY_PLAIN = document(statement("Deny", Principal="*", Action="s3:*", Resource="*", Condition=PLAIN))


OF_BUCKET, OF_EFS = {"bucket": ["bucket"]}, {"fileSystemId": ["efs"]}


def resource(
    type_: str, *, protect: bool = False, references: dict[str, list[str]] | None = None, **properties: object
) -> Tree:
    """A resource of the tree; `references` holds names of other resources by property."""
    return {
        "type": type_,
        "protect": protect,
        "references": references or {},
        "tags": TAGS if type_.startswith("aws:") else {},
        "properties": properties,
    }


_STORES: Tree = {
    "bucket": resource(tokens.BUCKET, protect=True, bucket="b"),
    "bucket-encryption": resource(
        tokens.BUCKET_ENCRYPTION,
        references=OF_BUCKET,
        rules=[{"applyServerSideEncryptionByDefault": {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": KEY_ARN}}],
    ),
    "bucket-policy": resource(tokens.BUCKET_POLICY, references=OF_BUCKET, policy=DENY_PLAIN),
    "bucket-access": resource(
        tokens.BUCKET_PUBLIC_ACCESS,
        references=OF_BUCKET,
        blockPublicAcls=True,
        blockPublicPolicy=True,
        ignorePublicAcls=True,
        restrictPublicBuckets=True,
    ),
    "bucket-ownership": resource(
        tokens.BUCKET_OWNERSHIP, references=OF_BUCKET, rule={"objectOwnership": "BucketOwnerEnforced"}
    ),
    "bucket-versioning": resource(
        tokens.BUCKET_VERSIONING, references=OF_BUCKET, versioningConfiguration={"status": "Enabled"}
    ),
    "bucket-lifecycle": resource(
        tokens.BUCKET_LIFECYCLE,
        references=OF_BUCKET,
        rules=[
            {"status": "Enabled", "noncurrentVersionExpiration": {"noncurrentDays": 30}},
            {"status": "Enabled", "abortIncompleteMultipartUpload": {"daysAfterInitiation": 3}},
        ],
    ),
    "efs": resource(tokens.FILE_SYSTEM, protect=True, encrypted=True, kmsKeyId=KEY_ARN),
    "lustre": resource(
        tokens.LUSTRE,
        protect=True,
        deploymentType="PERSISTENT_2",
        kmsKeyId=KEY_ARN,
        securityGroupIds=["sg-1"],
        rootSquashConfiguration={"rootSquash": "65534:65534"},
    ),
    "efs-policy": resource(tokens.FILE_SYSTEM_POLICY, references=OF_EFS, policy=DENY_PLAIN),
    "efs-backup": resource(tokens.FILE_SYSTEM_BACKUP, references=OF_EFS, backupPolicy={"status": "ENABLED"}),
    "database": resource(
        tokens.DATABASE,
        protect=True,
        references={"parameterGroupName": ["parameters"]},
        storageEncrypted=True,
        kmsKeyId=KEY_ARN,
        publiclyAccessible=False,
        deletionProtection=True,
        backupRetentionPeriod=35,
        skipFinalSnapshot=False,
        multiAz=True,
        manageMasterUserPassword=True,
        enabledCloudwatchLogsExports=["postgresql"],
    ),
    "parameters": resource(tokens.DATABASE_PARAMETERS, parameters=[{"name": "rds.force_ssl", "value": "1"}]),
    "repository": resource(
        tokens.REPOSITORY,
        protect=True,
        encryptionConfigurations=[{"encryptionType": "KMS", "kmsKey": KEY_ARN}],
        imageTagMutability="IMMUTABLE",
        imageScanningConfiguration={"scanOnPush": True},
    ),
    "key": resource(
        tokens.KEY,
        protect=True,
        enableKeyRotation=True,
        deletionWindowInDays=30,
        policy=document(statement(Principal={"AWS": "arn:aws:iam::111122223333:root"}, Action="kms:*", Resource="*")),
    ),
    "logs": resource(tokens.LOG_GROUP, name="/aws/eks/sample/cluster", kmsKeyId=KEY_ARN, retentionInDays=365),
}

_NETWORK: Tree = {
    "vpc": resource(tokens.VPC, cidrBlock="10.0.0.0/16"),
    "flow-log": resource(tokens.FLOW_LOG, references={"vpcId": ["vpc"]}, trafficType="ALL"),
    "subnet": resource(tokens.SUBNET, availabilityZone="us-east-1a"),
    "nat": resource(tokens.NAT_GATEWAY),
    "group": resource(tokens.SECURITY_GROUP, description="EFA between nodes"),
    "group-rule": resource(
        tokens.INGRESS_RULE,
        references={"securityGroupId": ["group"], "referencedSecurityGroupId": ["group"]},
        ipProtocol="-1",
        securityGroupId="sg-1",
        referencedSecurityGroupId="sg-1",
    ),
}

_CLUSTER: Tree = {
    "cluster": resource(
        tokens.CLUSTER,
        name="sample",
        version="1.35",
        deletionProtection=True,
        enabledClusterLogTypes=["api", "audit", "authenticator"],
        encryptionConfig={"provider": {"keyArn": KEY_ARN}, "resources": ["secrets"]},
        vpcConfig={"endpointPrivateAccess": True, "endpointPublicAccess": False},
    ),
    "addon": resource(tokens.ADDON, addonVersion="v1.2.3-eksbuild.1"),
    "template": resource(
        tokens.LAUNCH_TEMPLATE,
        references={"networkInterfaces": ["group"]},
        blockDeviceMappings=[{"deviceName": "/dev/xvda", "ebs": {"encrypted": "true", "volumeType": "gp3"}}],
        metadataOptions={"httpTokens": "required", "httpPutResponseHopLimit": 1},
        networkInterfaces=[{"interfaceType": "efa"}],
        tagSpecifications=[
            {"resourceType": kind, "tags": TAGS} for kind in ("instance", "volume", "network-interface")
        ],
        userData=b64encode(b"apiVersion: node.eks.aws/v1alpha1").decode(),
    ),
    "gpus": resource(
        tokens.NODE_GROUP,
        amiType="AL2023_x86_64_NVIDIA",
        releaseVersion="1.35.2-20260101",
        launchTemplate={"id": "lt-1", "version": "1"},
        taints=[{"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"}],
        nodeRepairConfig={"enabled": True},
        updateConfig={"maxUnavailablePercentage": 33},
        scalingConfig={"minSize": 0, "desiredSize": 0, "maxSize": 4},
    ),
    "gpus-tag": resource(
        tokens.ASG_TAG,
        references={"autoscalingGroupName": ["gpus"]},
        tag={"key": "k8s.io/cluster-autoscaler/node-template/resources/nvidia.com/gpu", "value": "8"},
    ),
    "system": resource(
        tokens.NODE_GROUP,
        labels={"ray-train-platform/group": "system"},
        amiType="AL2023_x86_64_STANDARD",
        releaseVersion="1.35.2-20260101",
        launchTemplate={"id": "lt-1", "version": "1"},
        updateConfig={"maxUnavailable": 1},
        scalingConfig={"minSize": 2, "desiredSize": 2, "maxSize": 4},
    ),
    "role": resource(tokens.ROLE, assumeRolePolicy=trust({"Service": "pods.eks.amazonaws.com"})),
    "role-policy": resource(
        tokens.ROLE_POLICY,
        policy=document(
            statement(Action="s3:GetObject", Resource="arn:aws:s3:::b/*"),
            statement(Action=["ec2:DescribeImages"], Resource="*"),
            statement(
                Action="iam:PassRole",
                Resource="arn:aws:iam::111122223333:role/x",
                Condition={"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
            ),
        ),
    ),
    "attachment": resource(tokens.ROLE_ATTACHMENT, policyArn="arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"),
    "budget": resource(tokens.BUDGET),
    "chart": resource(tokens.HELM_RELEASE, version="1.7.0"),
    "pod": resource("kubernetes:core/v1:Pod", spec={"containers": [{"image": f"registry/x@sha256:{'0' * 64}"}]}),
    "stack": resource(tokens.STACK, region="us-east-1", webhook_secret_name="a", cluster={"endpoint": "https://x.y"}),
}


def compliant_stack(changes: Tree | None = None, *, kind: str = "prod") -> Graph:
    """The stack with values at dotted paths replaced; `...` removes a value or a whole resource."""
    tree = changed(copy.deepcopy({**_STORES, **_NETWORK, **_CLUSTER}), changes or {})
    return Graph(
        Resource(
            type=fields["type"],
            name=name,
            urn=name,
            properties=fields["properties"],
            protect=fields["protect"],
            references={prop: frozenset(urns) for prop, urns in fields["references"].items()},
            default_tags={**fields["tags"], "kind": kind} if fields["tags"] else {},
        )
        for name, fields in tree.items()
    )
