"""What the available provider version or moto does not support, with reasons.

The list may only shrink: `COUNT` is its length, and a test rejects unused entries.
"""

from __future__ import annotations

from collections.abc import Mapping

NOT_IN_PROVIDER: Mapping[tuple[str, str], str] = {
    ("aws:eks/cluster:Cluster", "deletionProtection"): "added in provider 6.11; the mirror has 5.100",
    ("aws:eks/nodeGroup:NodeGroup", "updateConfig.updateStrategy"): "the mirror has 5.100; the SDK in the lock has it",
}
"""Properties that the mirrored provider lacks, by type token and path."""

NOT_ON_MOTO: Mapping[tuple[str, str], str] = {
    ("aws:autoscaling/tag:Tag", "*"): "moto's EKS creates no Auto Scaling group for a node group",
    ("aws:budgets/budget:Budget", "*"): "moto has no DescribeSubscribersForNotification",
    ("aws:ecr/pullThroughCacheRule:PullThroughCacheRule", "*"): "moto has no pull-through cache",
    ("aws:ecr/repositoryCreationTemplate:RepositoryCreationTemplate", "*"): "moto has no creation templates",
    ("aws:efs/backupPolicy:BackupPolicy", "*"): "moto has no PutBackupPolicy",
    ("aws:efs/fileSystemPolicy:FileSystemPolicy", "*"): "moto has no DeleteFileSystemPolicy",
    ("aws:eks/accessEntry:AccessEntry", "*"): "moto's EKS has no access entries",
    ("aws:eks/accessPolicyAssociation:AccessPolicyAssociation", "*"): "moto's EKS has no access entries",
    ("aws:eks/addon:Addon", "*"): "moto's EKS has no add-ons",
    ("aws:eks/podIdentityAssociation:PodIdentityAssociation", "*"): "moto's EKS has no Pod Identity",
    ("aws:rds/instance:Instance", "*"): "the provider waits three minutes for it",
    ("aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration", "*"): "the provider always waits a minute",
    ("aws:s3/bucketLogging:BucketLogging", "*"): "moto finds the delivery permission only if Resource is not a list",
    ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "database"): "moto's cluster has no security group",
    ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "efs"): "moto's cluster has no security group",
}
"""Resources that are planned but not applied, nor are those that refer to them, by type token and logical name; `*` is every name."""

NOT_RETURNED_BY_MOTO: Mapping[tuple[str, str], str] = {
    ("aws_db_parameter_group", "parameter"): "moto returns no parameters of a group",
    ("aws_eks_cluster", "access_config"): "DescribeCluster of moto leaves it out",
    ("aws_eks_cluster", "upgrade_policy"): "DescribeCluster of moto leaves it out",
    ("aws_eks_node_group", "node_repair_config"): "DescribeNodegroup of moto leaves it out",
    ("aws_eks_node_group", "remote_access"): "DescribeNodegroup of moto returns an invented one",
    ("aws_eks_node_group", "update_config"): "DescribeNodegroup of moto leaves it out",
    ("aws_launch_template", "tag_specifications"): "moto includes the template's own tags",
    ("aws_launch_template", "vpc_security_group_ids"): "moto's EKS cluster has no security group",
    ("aws_vpc_security_group_egress_rule", "description"): "moto drops it if the peer is a security group",
    ("aws_vpc_security_group_ingress_rule", "description"): "moto drops it if the peer is a security group",
}
"""Attributes that moto accepts but does not return, by Terraform type; the second plan ignores them."""

COUNT = 27
"""Number of exceptions."""
