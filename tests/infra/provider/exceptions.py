"""What the real provider, or moto behind it, cannot be shown: every exception with its reason.

The list may only shrink: `COUNT` is its length, and a test refuses an entry that nothing needs.
"""

from __future__ import annotations

from collections.abc import Mapping

NEWER_THAN_THE_PROVIDER: Mapping[tuple[str, str], str] = {
    ("aws:eks/cluster:Cluster", "deletionProtection"): "added in provider 6.11; Terraform's 5.100 is what is here",
}
"""Properties, by type token and path, that the mirrored provider does not know yet."""

NOT_ON_MOTO: Mapping[tuple[str, str], str] = {
    ("aws:autoscaling/tag:Tag", "*"): "moto's EKS makes no autoscaling group behind a node group",
    ("aws:budgets/budget:Budget", "*"): "moto has no DescribeSubscribersForNotification",
    ("aws:ecr/pullThroughCacheRule:PullThroughCacheRule", "*"): "moto has no pull-through cache",
    ("aws:ecr/repositoryCreationTemplate:RepositoryCreationTemplate", "*"): "moto has no creation templates",
    ("aws:efs/backupPolicy:BackupPolicy", "*"): "moto has no PutBackupPolicy",
    ("aws:efs/fileSystemPolicy:FileSystemPolicy", "*"): "moto has no DeleteFileSystemPolicy",
    ("aws:eks/accessEntry:AccessEntry", "*"): "moto's EKS has no access entries",
    ("aws:eks/accessPolicyAssociation:AccessPolicyAssociation", "*"): "moto's EKS has no access entries",
    ("aws:eks/addon:Addon", "*"): "moto's EKS has no add-ons",
    ("aws:eks/podIdentityAssociation:PodIdentityAssociation", "*"): "moto's EKS has no Pod Identity",
    ("aws:iam/rolePolicy:RolePolicy", "mlflow"): "names the secret of the database, which is left out",
    ("aws:rds/instance:Instance", "*"): "the provider waits three minutes until it believes that it is there",
    ("aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration", "*"): "the provider waits a minute, always",
    ("aws:s3/bucketLogging:BucketLogging", "*"): "moto finds the delivery's permission only where Resource is no list",
    ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "database"): "moto's cluster has no security group",
    ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "efs"): "moto's cluster has no security group",
}
"""Resources, by type token and logical name, that are planned but not applied; `*` is every name."""

NOT_SHOWN_BY_MOTO: Mapping[tuple[str, str], str] = {
    ("aws_db_parameter_group", "parameter"): "moto lists no parameters of a group",
    ("aws_eks_cluster", "access_config"): "DescribeCluster of moto leaves it out",
    ("aws_eks_cluster", "upgrade_policy"): "DescribeCluster of moto leaves it out",
    ("aws_eks_node_group", "node_repair_config"): "DescribeNodegroup of moto leaves it out",
    ("aws_eks_node_group", "remote_access"): "DescribeNodegroup of moto makes one up",
    ("aws_eks_node_group", "update_config"): "DescribeNodegroup of moto leaves it out",
    ("aws_launch_template", "tag_specifications"): "moto counts the template's own tags among them",
    ("aws_launch_template", "vpc_security_group_ids"): "moto's cluster has no security group to be named here",
    ("aws_vpc_security_group_egress_rule", "description"): "moto forgets it where the peer is a security group",
    ("aws_vpc_security_group_ingress_rule", "description"): "moto forgets it where the peer is a security group",
}
"""Attributes, by Terraform type, that moto takes and does not give back; the second plan leaves them alone."""

COUNT = 27
"""How many exceptions there are."""
