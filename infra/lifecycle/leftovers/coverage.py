"""Which kind of the inventory answers for each type of resource that the program makes.

A type with a kind is looked for by itself. The others are parts of something else, and the reason says of what.
"""

from __future__ import annotations

from collections.abc import Mapping

from infra.lifecycle.leftovers.kinds import balancing, compute, content, databases, file_systems, identity, messages

_NODE_GROUP = "EKS node group"

KIND_OF: Mapping[str, str] = {
    "aws:budgets/budget:Budget": messages.BUDGET,
    "aws:cloudwatch/logGroup:LogGroup": content.LOG_GROUP,
    "aws:ec2/eip:Eip": "elastic IP address",
    "aws:ec2/flowLog:FlowLog": "flow log",
    "aws:ec2/internetGateway:InternetGateway": "internet gateway",
    "aws:ec2/launchTemplate:LaunchTemplate": "launch template",
    "aws:ec2/natGateway:NatGateway": "NAT gateway",
    "aws:ec2/placementGroup:PlacementGroup": "placement group",
    "aws:ec2/routeTable:RouteTable": "route table",
    "aws:ec2/securityGroup:SecurityGroup": "security group",
    "aws:ec2/subnet:Subnet": "subnet",
    "aws:ec2/vpc:Vpc": "VPC",
    "aws:ec2/vpcEndpoint:VpcEndpoint": "VPC endpoint",
    "aws:ecr/pullThroughCacheRule:PullThroughCacheRule": content.PULL_THROUGH_RULE,
    "aws:ecr/repository:Repository": content.REPOSITORY,
    "aws:ecr/repositoryCreationTemplate:RepositoryCreationTemplate": content.CREATION_TEMPLATE,
    "aws:efs/accessPoint:AccessPoint": "EFS access point",
    "aws:efs/fileSystem:FileSystem": file_systems.EFS,
    "aws:efs/mountTarget:MountTarget": "EFS mount target",
    "aws:eks/cluster:Cluster": compute.CLUSTER,
    "aws:eks/nodeGroup:NodeGroup": _NODE_GROUP,
    "aws:fsx/lustreFileSystem:LustreFileSystem": "FSx file system",
    "aws:iam/role:Role": identity.ROLE,
    "aws:kms/alias:Alias": identity.ALIAS,
    "aws:kms/key:Key": identity.KEY,
    "aws:rds/instance:Instance": databases.INSTANCE,
    "aws:rds/parameterGroup:ParameterGroup": "RDS parameter group",
    "aws:rds/subnetGroup:SubnetGroup": "RDS subnet group",
    "aws:s3/bucket:Bucket": content.BUCKET,
    "aws:sns/topic:Topic": messages.TOPIC,
}
"""Kind by type."""

_OF_A_BUCKET = f"a setting of an {content.BUCKET}"
_OF_A_VPC = "part of a VPC, which AWS deletes with it"
_OF_A_TABLE = "part of a route table"
_OF_A_ROLE = f"part of an {identity.ROLE}"
_OF_A_CLUSTER = f"part of an {compute.CLUSTER}, which AWS deletes with it"
_OF_A_GROUP = "rule of a security group"

PART_OF: Mapping[str, str] = {
    "aws:autoscaling/tag:Tag": "tag of an Auto Scaling group",
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": _OF_A_VPC,
    "aws:ec2/route:Route": _OF_A_TABLE,
    "aws:ec2/routeTableAssociation:RouteTableAssociation": _OF_A_TABLE,
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": f"setting of an {content.REPOSITORY}",
    "aws:efs/backupPolicy:BackupPolicy": f"setting of an {file_systems.EFS}; recovery points are a kind of their own",
    "aws:efs/fileSystemPolicy:FileSystemPolicy": f"setting of an {file_systems.EFS}",
    "aws:eks/accessEntry:AccessEntry": _OF_A_CLUSTER,
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": _OF_A_CLUSTER,
    "aws:eks/addon:Addon": _OF_A_CLUSTER,
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": _OF_A_CLUSTER,
    "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation": "link of an FSx file system, which goes with it",
    "aws:iam/rolePolicy:RolePolicy": _OF_A_ROLE,
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": _OF_A_ROLE,
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": _OF_A_BUCKET,
    "aws:s3/bucketLogging:BucketLogging": _OF_A_BUCKET,
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": _OF_A_BUCKET,
    "aws:s3/bucketPolicy:BucketPolicy": _OF_A_BUCKET,
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _OF_A_BUCKET,
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _OF_A_BUCKET,
    "aws:s3/bucketVersioning:BucketVersioning": _OF_A_BUCKET,
    "aws:sns/topicSubscription:TopicSubscription": f"part of an {messages.TOPIC}, which SNS deletes with it",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": _OF_A_GROUP,
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": _OF_A_GROUP,
}
"""Why a type needs no kind of its own."""

MADE_BY_OTHERS: Mapping[str, str] = {
    "Auto Scaling group": "EKS, for a node group",
    compute.INSTANCE: "the Auto Scaling group of a node group",
    balancing.LOAD_BALANCER: "AWS Load Balancer Controller",
    "classic load balancer": "the cloud provider in the cluster, for a Service",
    "target group": "AWS Load Balancer Controller",
    "network interface": "the VPC CNI, RDS, EFS and load balancers",
    "EBS volume": "the EBS CSI driver, for a PersistentVolumeClaim, and EC2 for a node",
    "EBS snapshot": "the EBS CSI driver, and people",
    "key pair": "people",
    "instance profile": "EKS, for the role of a node group",
    databases.SNAPSHOT: "RDS, before it deletes an instance",
    databases.RETAINED_BACKUP: "RDS, when it deletes an instance",
    file_systems.RECOVERY_POINT: "AWS Backup, of a file system",
    "backup vault": "people",
    content.SECRET: "people, for the webhook of alerts",
    "CloudWatch alarm": "people",
    "SQS queue": "people",
    "event rule": "people",
    "IAM policy": "people",
    "OIDC provider": "people, and other tools for the same cluster",
}
"""Who makes the kinds that the program does not."""
