"""Permissions on the resources of all services but EC2.

Source: Service Authorization Reference, one page per service. Most names of these resources are known before they exist;
keys and file systems are limited by tags.
"""

from __future__ import annotations

from infra.lifecycle.deployer.grants import Grant, Scope, Table, actions, named, read

_BUCKET = "arn:aws:s3:::{name}"
_BUCKETS = "aws:s3/bucket:Bucket"
_ROLES = "aws:iam/role:Role"
_OWN_ROLES = "arn:aws:iam::{account}:role/{prefix}/*"
ROLES = (_OWN_ROLES, "arn:aws:iam::{account}:role/{name}")
"""ARNs of the environment's roles. Those without its path are of an older release; every environment's have the same names."""
_CLUSTER = "arn:aws:eks:{region}:{account}:cluster/{cluster}"
_KEY = "arn:aws:kms:{region}:{account}:key/*"
_FILE_SYSTEM = "arn:aws:elasticfilesystem:{region}:{account}:file-system/*"
_ACCESS_POINT = "arn:aws:elasticfilesystem:{region}:{account}:access-point/*"
_LUSTRE = "arn:aws:fsx:{region}:{account}:file-system/*"
_LUSTRE_LINK = "arn:aws:fsx:{region}:{account}:association/*"
_REPOSITORY = "arn:aws:ecr:{region}:{account}:repository/{name}"
_PARAMETERS = "arn:aws:rds:{region}:{account}:pg:{name}"
_SUBNETS = "arn:aws:rds:{region}:{account}:subgrp:{name}"
_TOPIC = "arn:aws:sns:{region}:{account}:{name}"


def _in_cluster(kind: str) -> str:
    return f"arn:aws:eks:{{region}}:{{account}}:{kind}/{{cluster}}/*"


def _bucket(names: str) -> tuple[Grant, ...]:
    return (named("s3", names, _BUCKET, names_of=_BUCKETS),)


def _ours(service: str, names: str, *resources: str, names_of: str = "") -> Grant:
    return Grant(scope=Scope.OURS, actions=actions(service, names), resources=resources, names_of=names_of)


def _new(service: str, names: str, *resources: str) -> Grant:
    return Grant(scope=Scope.NEW, actions=actions(service, names), resources=resources or ("*",))


_STORES: Table = {
    _BUCKETS: (
        # The provider reads every part of a bucket, also those that the stack leaves at their defaults.
        named(
            "s3",
            "CreateBucket DeleteBucket ListBucket GetBucketLocation GetBucketTagging PutBucketTagging GetBucketAcl GetBucketCORS "
            "GetBucketWebsite GetBucketVersioning GetAccelerateConfiguration GetBucketRequestPayment GetBucketLogging "
            "GetLifecycleConfiguration GetReplicationConfiguration GetEncryptionConfiguration GetBucketObjectLockConfiguration "
            "GetBucketPolicy ListBucketVersions ListTagsForResource TagResource UntagResource",
            _BUCKET,
        ),
    ),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": _bucket(
        "GetLifecycleConfiguration PutLifecycleConfiguration"
    ),
    "aws:s3/bucketLogging:BucketLogging": _bucket("GetBucketLogging PutBucketLogging"),
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": _bucket(
        "GetBucketOwnershipControls PutBucketOwnershipControls"
    ),
    "aws:s3/bucketPolicy:BucketPolicy": _bucket("GetBucketPolicy PutBucketPolicy DeleteBucketPolicy"),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _bucket(
        "GetBucketPublicAccessBlock PutBucketPublicAccessBlock"
    ),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _bucket(
        "GetEncryptionConfiguration PutEncryptionConfiguration"
    ),
    "aws:s3/bucketVersioning:BucketVersioning": _bucket("GetBucketVersioning PutBucketVersioning"),
    "aws:efs/fileSystem:FileSystem": (
        _new("elasticfilesystem", "CreateFileSystem TagResource", _FILE_SYSTEM),
        _ours(
            "elasticfilesystem",
            "UpdateFileSystem DeleteFileSystem PutLifecycleConfiguration DescribeLifecycleConfiguration TagResource "
            "UntagResource ListTagsForResource DescribeReplicationConfigurations",
            _FILE_SYSTEM,
        ),
        read("elasticfilesystem", "DescribeFileSystems"),
    ),
    "aws:efs/accessPoint:AccessPoint": (
        _new("elasticfilesystem", "TagResource", _ACCESS_POINT),
        _ours("elasticfilesystem", "CreateAccessPoint", _FILE_SYSTEM),
        _ours("elasticfilesystem", "DeleteAccessPoint TagResource UntagResource ListTagsForResource", _ACCESS_POINT),
        read("elasticfilesystem", "DescribeAccessPoints"),
    ),
    "aws:efs/backupPolicy:BackupPolicy": (
        _ours("elasticfilesystem", "DescribeBackupPolicy PutBackupPolicy", _FILE_SYSTEM),
    ),
    "aws:efs/fileSystemPolicy:FileSystemPolicy": (
        _ours(
            "elasticfilesystem",
            "DescribeFileSystemPolicy PutFileSystemPolicy DeleteFileSystemPolicy",
            _FILE_SYSTEM,
        ),
    ),
    "aws:efs/mountTarget:MountTarget": (
        _ours(
            "elasticfilesystem",
            "CreateMountTarget DeleteMountTarget DescribeMountTargetSecurityGroups ModifyMountTargetSecurityGroups",
            _FILE_SYSTEM,
        ),
        # EFS checks these of its caller (EFS user guide, "Required permissions for CreateMountTarget").
        read("ec2", "CreateNetworkInterface DescribeNetworkInterfaces DescribeSubnets"),
        read("elasticfilesystem", "DescribeMountTargets"),
    ),
    # The roles that FSx makes for itself, and the bucket: infra/lifecycle/deployer/policy.py.
    "aws:fsx/lustreFileSystem:LustreFileSystem": (
        _new("fsx", "CreateFileSystem TagResource", _LUSTRE),
        _ours("fsx", "UpdateFileSystem DeleteFileSystem TagResource UntagResource ListTagsForResource", _LUSTRE),
        read("fsx", "DescribeFileSystems"),
        # FSx checks these of its caller (AWS managed policy AmazonFSxFullAccess).
        read("ec2", "DescribeSecurityGroups DescribeSubnets DescribeVpcs GetSecurityGroupsForVpc"),
    ),
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": (
        _new("fsx", "CreateDataRepositoryAssociation TagResource", _LUSTRE_LINK),
        _ours("fsx", "CreateDataRepositoryAssociation", _LUSTRE),
        _ours(
            "fsx",
            "UpdateDataRepositoryAssociation DeleteDataRepositoryAssociation TagResource UntagResource ListTagsForResource",
            _LUSTRE_LINK,
        ),
        read("fsx", "DescribeDataRepositoryAssociations"),
    ),
    "aws:rds/instance:Instance": (
        named(
            "rds",
            "CreateDBInstance ModifyDBInstance DeleteDBInstance RebootDBInstance CreateDBSnapshot AddTagsToResource "
            "RemoveTagsFromResource ListTagsForResource",
            "arn:aws:rds:{region}:{account}:db:{name}",
            "arn:aws:rds:{region}:{account}:snapshot:{name}*",
        ),
        _ours(
            "rds", "CreateDBInstance ModifyDBInstance", _PARAMETERS, names_of="aws:rds/parameterGroup:ParameterGroup"
        ),
        _ours("rds", "CreateDBInstance ModifyDBInstance", _SUBNETS, names_of="aws:rds/subnetGroup:SubnetGroup"),
        named("rds", "CreateDBInstance ModifyDBInstance", "arn:aws:rds:{region}:{account}:og:default:*"),
        # RDS checks these of its caller to make the master password (RDS user guide, "Secrets Manager integration").
        named(
            "secretsmanager", "CreateSecret TagResource", "arn:aws:secretsmanager:{region}:{account}:secret:rds!db-*"
        ),
        read(
            "rds", "DescribeDBInstances DescribeDBSnapshots DescribeDBEngineVersions DescribeOrderableDBInstanceOptions"
        ),
    ),
    "aws:rds/parameterGroup:ParameterGroup": (
        _new("rds", "CreateDBParameterGroup AddTagsToResource", _PARAMETERS),
        _ours(
            "rds",
            "ModifyDBParameterGroup ResetDBParameterGroup DeleteDBParameterGroup AddTagsToResource RemoveTagsFromResource",
            _PARAMETERS,
        ),
        named("rds", "DescribeDBParameters ListTagsForResource", _PARAMETERS),
        read("rds", "DescribeDBParameterGroups"),
    ),
    "aws:rds/subnetGroup:SubnetGroup": (
        _new("rds", "CreateDBSubnetGroup AddTagsToResource", _SUBNETS),
        _ours("rds", "ModifyDBSubnetGroup DeleteDBSubnetGroup AddTagsToResource RemoveTagsFromResource", _SUBNETS),
        named("rds", "ListTagsForResource", _SUBNETS),
        read("rds", "DescribeDBSubnetGroups"),
    ),
    "aws:ecr/repository:Repository": (
        # The second line pushes, verifies and promotes images.
        named(
            "ecr",
            "CreateRepository DescribeRepositories DeleteRepository PutImageScanningConfiguration PutImageTagMutability "
            "TagResource UntagResource ListTagsForResource GetRepositoryPolicy DescribeImages BatchGetImage "
            "GetDownloadUrlForLayer BatchCheckLayerAvailability InitiateLayerUpload UploadLayerPart CompleteLayerUpload PutImage",
            _REPOSITORY,
        ),
        read("ecr", "GetAuthorizationToken"),
    ),
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": (
        named(
            "ecr",
            "GetLifecyclePolicy PutLifecyclePolicy DeleteLifecyclePolicy",
            _REPOSITORY,
            names_of="aws:ecr/repository:Repository",
        ),
    ),
    "aws:ecr/pullThroughCacheRule:PullThroughCacheRule": (
        read(
            "ecr",
            "CreatePullThroughCacheRule DescribePullThroughCacheRules UpdatePullThroughCacheRule DeletePullThroughCacheRule",
        ),
    ),
    "aws:ecr/repositoryCreationTemplate:RepositoryCreationTemplate": (
        read(
            "ecr",
            "CreateRepositoryCreationTemplate DescribeRepositoryCreationTemplates UpdateRepositoryCreationTemplate "
            "DeleteRepositoryCreationTemplate",
        ),
    ),
}

_CLUSTERS: Table = {
    "aws:eks/cluster:Cluster": (
        named(
            "eks",
            "CreateCluster DescribeCluster UpdateClusterConfig UpdateClusterVersion AssociateEncryptionConfig DeleteCluster "
            "DescribeUpdate ListUpdates TagResource UntagResource ListTagsForResource",
            _CLUSTER,
        ),
        read("eks", "DescribeClusterVersions"),
    ),
    "aws:eks/addon:Addon": (
        named("eks", "CreateAddon", _CLUSTER),
        named(
            "eks",
            "DescribeAddon UpdateAddon DeleteAddon DescribeUpdate TagResource UntagResource",
            _in_cluster("addon"),
        ),
        read("eks", "DescribeAddonVersions DescribeAddonConfiguration"),
    ),
    "aws:eks/nodeGroup:NodeGroup": (
        named("eks", "CreateNodegroup", _CLUSTER),
        named(
            "eks",
            "DescribeNodegroup UpdateNodegroupConfig UpdateNodegroupVersion DeleteNodegroup DescribeUpdate TagResource "
            "UntagResource",
            _in_cluster("nodegroup"),
        ),
    ),
    "aws:eks/accessEntry:AccessEntry": (
        named("eks", "CreateAccessEntry", _CLUSTER),
        named(
            "eks",
            "DescribeAccessEntry UpdateAccessEntry DeleteAccessEntry TagResource UntagResource",
            _in_cluster("access-entry"),
        ),
    ),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": (
        named(
            "eks",
            "AssociateAccessPolicy DisassociateAccessPolicy ListAssociatedAccessPolicies",
            _in_cluster("access-entry"),
        ),
    ),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": (
        named("eks", "CreatePodIdentityAssociation", _CLUSTER),
        named(
            "eks",
            "DescribePodIdentityAssociation UpdatePodIdentityAssociation DeletePodIdentityAssociation TagResource "
            "UntagResource",
            _in_cluster("podidentityassociation"),
        ),
    ),
    "aws:autoscaling/tag:Tag": (
        # The groups are EKS's, and named after the node groups.
        Grant(
            scope=Scope.CLUSTER,
            actions=actions("autoscaling", "CreateOrUpdateTags DeleteTags"),
            resources=("arn:aws:autoscaling:{region}:{account}:autoScalingGroup:*:autoScalingGroupName/eks-{name}-*",),
            names_of="aws:eks/nodeGroup:NodeGroup",
        ),
        read("autoscaling", "DescribeTags DescribeAutoScalingGroups"),
    ),
}

_IDENTITY_AND_OBSERVABILITY: Table = {
    _ROLES: (
        _new("iam", "CreateRole TagRole", _OWN_ROLES),
        _ours(
            "iam",
            "UpdateRole UpdateRoleDescription UpdateAssumeRolePolicy DeleteRole TagRole UntagRole",
            *ROLES,
        ),
        # Of a role that does not exist there is no tag, and the provider has to learn that it does not.
        named("iam", "GetRole ListRolePolicies ListAttachedRolePolicies ListInstanceProfilesForRole", *ROLES),
    ),
    "aws:iam/rolePolicy:RolePolicy": (
        named("iam", "GetRolePolicy", *ROLES, names_of=_ROLES),
        _ours("iam", "PutRolePolicy DeleteRolePolicy", *ROLES, names_of=_ROLES),
    ),
    # Attaching is limited to the policies of the graph as well: infra/lifecycle/deployer/policy.py.
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": (
        named("iam", "ListAttachedRolePolicies", *ROLES, names_of=_ROLES),
    ),
    "aws:kms/key:Key": (
        _new("kms", "CreateKey"),
        _new("kms", "TagResource", _KEY),
        _ours(
            "kms",
            "DescribeKey GetKeyPolicy PutKeyPolicy GetKeyRotationStatus EnableKeyRotation UpdateKeyDescription "
            "ScheduleKeyDeletion TagResource UntagResource ListResourceTags",
            _KEY,
        ),
    ),
    "aws:kms/alias:Alias": (
        named("kms", "CreateAlias UpdateAlias DeleteAlias", "arn:aws:kms:{region}:{account}:{name}"),
        _ours("kms", "CreateAlias UpdateAlias DeleteAlias", _KEY),
        read("kms", "ListAliases"),
    ),
    "aws:cloudwatch/logGroup:LogGroup": (
        named(
            "logs",
            "CreateLogGroup DeleteLogGroup PutRetentionPolicy DeleteRetentionPolicy AssociateKmsKey DisassociateKmsKey "
            "TagResource UntagResource ListTagsForResource",
            "arn:aws:logs:{region}:{account}:log-group:{name}",
            "arn:aws:logs:{region}:{account}:log-group:{name}:*",
        ),
        read("logs", "DescribeLogGroups"),
    ),
    "aws:sns/topic:Topic": (
        named(
            "sns",
            "CreateTopic GetTopicAttributes SetTopicAttributes DeleteTopic TagResource UntagResource ListTagsForResource "
            "GetDataProtectionPolicy",
            _TOPIC,
        ),
    ),
    "aws:sns/topicSubscription:TopicSubscription": (
        named("sns", "Subscribe ListSubscriptionsByTopic", _TOPIC, names_of="aws:sns/topic:Topic"),
        read("sns", "GetSubscriptionAttributes SetSubscriptionAttributes Unsubscribe"),
    ),
    "aws:budgets/budget:Budget": (
        named(
            "budgets",
            "ViewBudget ModifyBudget TagResource UntagResource ListTagsForResource",
            "arn:aws:budgets::{account}:budget/{name}",
        ),
    ),
}

SERVICES: Table = {**_STORES, **_CLUSTERS, **_IDENTITY_AND_OBSERVABILITY}
"""Grants on the resources of all services but EC2, by type."""
