"""Plants stores, messages and identities, and lists the plant of every kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from infra.lifecycle.leftovers.found import Key
from infra.spec.settings.loading import PROJECT
from tests.infra.lifecycle.leftovers import plants_of_networks as networks
from tests.infra.lifecycle.leftovers.moto_gaps import add_recovery_point
from tests.infra.lifecycle.leftovers.planter import ACCOUNT, REGION, Owner, Planter

Plant = Callable[[Planter], object]


def mount_target(to: Planter) -> None:
    """A mount target of the file system."""
    made = to.client("efs").create_mount_target(FileSystemId=to.file_system, SubnetId=to.subnet)
    to.note("EFS mount target", made["MountTargetId"])


def access_point(to: Planter) -> None:
    """An access point of the file system, without tags."""
    made = to.client("efs").create_access_point(ClientToken=to.cluster_name, FileSystemId=to.file_system)
    to.note("EFS access point", made["AccessPointId"])


def fsx(to: Planter) -> None:
    """An FSx for Lustre file system."""
    made = to.client("fsx").create_file_system(
        FileSystemType="LUSTRE",
        StorageCapacity=1200,
        SubnetIds=[to.subnet],
        LustreConfiguration={"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 250},
        **to.if_any(Tags=to.pairs),
    )
    to.note("FSx file system", made["FileSystem"]["FileSystemId"])


def snapshot(to: Planter) -> None:
    """A snapshot of a volume."""
    made = to.client("ec2").create_snapshot(VolumeId=to.volume, **to.tagging("snapshot", by_controller=True))
    to.note("EBS snapshot", made["SnapshotId"])


def recovery_point(to: Planter) -> None:
    """A recovery point with the tags of the file system that it is of."""
    arn = f"arn:aws:backup:{REGION}:{ACCOUNT}:recovery-point:of-{to.owner.environment}"
    add_recovery_point(to.vault, arn, account=ACCOUNT, region=REGION, tags=to.owner.tags)
    to.note("recovery point", arn)


def database_snapshot(to: Planter) -> None:
    """A manual snapshot of the database."""
    name = f"{to.database}-before-upgrade"
    to.client("rds").create_db_snapshot(DBSnapshotIdentifier=name, DBInstanceIdentifier=to.database)
    to.note("RDS snapshot", name)


def retained_backup(to: Planter) -> None:
    """Backups of a database that is gone."""
    to.client("rds").delete_db_instance(
        DBInstanceIdentifier=to.database, SkipFinalSnapshot=True, DeleteAutomatedBackups=False
    )
    to.keys.discard(Key("RDS instance", to.database, REGION))
    to.note("RDS retained backup", f"db-{to.database}")


def database_subnets(to: Planter) -> None:
    """A subnet group."""
    name = f"mlflow-{to.owner.environment}"
    to.client("rds").create_db_subnet_group(
        DBSubnetGroupName=name, DBSubnetGroupDescription="of MLflow", SubnetIds=[to.subnet], Tags=to.pairs
    )
    to.note("RDS subnet group", name)


def database_parameters(to: Planter) -> None:
    """A parameter group."""
    name = f"mlflow-{to.owner.environment}"
    to.client("rds").create_db_parameter_group(
        DBParameterGroupName=name, DBParameterGroupFamily="postgres17", Description="TLS only", Tags=to.pairs
    )
    to.note("RDS parameter group", name)


def bucket(to: Planter) -> None:
    """A versioned bucket with an object of two versions and a deleted one."""
    s3, name = to.client("s3"), f"{to.cluster_name}-artifacts-{ACCOUNT}"
    s3.create_bucket(Bucket=name)
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    for key in ("a", "a", "b"):
        s3.put_object(Bucket=name, Key=key, Body=b"x")
    s3.delete_object(Bucket=name, Key="b")
    to.note("S3 bucket", name)


def repository(to: Planter) -> None:
    """An image repository."""
    name = f"{to.cluster_name}/trainer"
    to.client("ecr").create_repository(repositoryName=name, tags=to.pairs)
    to.note("ECR repository", name)


def cache_rule(to: Planter) -> None:
    """A pull-through cache."""
    prefix = f"{to.cluster_name}/quay"
    to.client("ecr").create_pull_through_cache_rule(ecrRepositoryPrefix=prefix, upstreamRegistryUrl="quay.io")
    to.note("pull-through cache rule", prefix)


def creation_template(to: Planter) -> None:
    """The template of its repositories."""
    prefix = f"{to.cluster_name}/quay"
    to.client("ecr").create_repository_creation_template(prefix=prefix, appliedFor=["PULL_THROUGH_CACHE"])
    to.note("repository creation template", prefix)


def log_group(to: Planter) -> None:
    """A log group that EKS made again after its deletion: without tags."""
    name = f"/aws/eks/{to.cluster_name}/cluster"
    to.client("logs").create_log_group(logGroupName=name)
    to.note("log group", name)


def secret(to: Planter) -> None:
    """The URL of the alert webhook."""
    name = f"{PROJECT}/{to.owner.environment}/alert-webhook"
    made = to.client("secretsmanager").create_secret(Name=name, SecretString="https://example.com")
    to.note("secret", made["ARN"])


def alarm(to: Planter) -> None:
    """An alarm."""
    name = f"queue-of-{to.owner.environment}"
    to.client("cloudwatch").put_metric_alarm(
        AlarmName=name,
        MetricName="CPUUtilization",
        Namespace="AWS/EC2",
        Statistic="Average",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1,
        ComparisonOperator="GreaterThanThreshold",
        Tags=to.pairs,
    )
    to.note("CloudWatch alarm", name)


def queue(to: Planter) -> None:
    """A queue."""
    made = to.client("sqs").create_queue(QueueName=f"events-of-{to.owner.environment}", tags=dict(to.owner.tags))
    to.note("SQS queue", made["QueueUrl"])


def event_rule(to: Planter) -> None:
    """A rule with a target."""
    name, events = f"nightly-of-{to.owner.environment}", to.client("events")
    events.put_rule(Name=name, ScheduleExpression="rate(1 day)", Tags=to.pairs)
    events.put_targets(Rule=name, Targets=[{"Id": "one", "Arn": f"arn:aws:sns:{REGION}:{ACCOUNT}:somewhere"}])
    to.note("event rule", name)


def budget(to: Planter) -> None:
    """The budget."""
    limit = {"Amount": "100", "Unit": "USD"}
    made = {"BudgetName": to.cluster_name, "BudgetLimit": limit, "TimeUnit": "MONTHLY", "BudgetType": "COST"}
    to.client("budgets").create_budget(AccountId=ACCOUNT, Budget=made)
    to.note("budget", to.cluster_name)


def alias(to: Planter) -> None:
    """An alias of a key."""
    name = f"alias/{to.cluster_name}/logs"
    to.client("kms").create_alias(AliasName=name, TargetKeyId=to.key)
    to.note("KMS alias", name)


def profile(to: Planter) -> None:
    """The instance profile that EKS makes for the role of nodes."""
    name, iam = f"eks-{to.owner.environment}", to.client("iam")
    iam.create_instance_profile(InstanceProfileName=name)
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=to.role)
    to.note("instance profile", name)


def iam_policy(to: Planter) -> None:
    """A policy of two versions, attached to the role."""
    iam, statement = to.client("iam"), {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    name = f"extra-of-{to.owner.environment}"
    arn = iam.create_policy(PolicyName=name, PolicyDocument=document, Tags=to.pairs)["Policy"]["Arn"]
    iam.create_policy_version(PolicyArn=arn, PolicyDocument=document, SetAsDefault=True)
    iam.attach_role_policy(RoleName=to.role, PolicyArn=arn)
    to.note("IAM policy", arn)


def oidc_provider(to: Planter) -> None:
    """An OIDC provider."""
    made = to.client("iam").create_open_id_connect_provider(
        Url=f"https://oidc.example.com/{to.owner.environment}", ThumbprintList=["a" * 40], Tags=to.pairs
    )
    to.note("OIDC provider", made["OpenIDConnectProviderArn"])


PLANTS: Mapping[str, Plant] = {
    "EKS node group": networks.node_group,
    "Auto Scaling group": networks.scaling_group,
    "EC2 instance": networks.instance,
    "EKS cluster": lambda to: to.cluster,
    "launch template": networks.launch_template,
    "placement group": networks.placement_group,
    "key pair": networks.key_pair,
    "load balancer": networks.load_balancer,
    "classic load balancer": networks.classic_load_balancer,
    "target group": networks.target_group,
    "EFS mount target": mount_target,
    "EFS access point": access_point,
    "EFS file system": lambda to: to.file_system,
    "FSx file system": fsx,
    "EBS volume": lambda to: to.volume,
    "EBS snapshot": snapshot,
    "recovery point": recovery_point,
    "backup vault": lambda to: to.vault,
    "RDS instance": lambda to: to.database,
    "RDS snapshot": database_snapshot,
    "RDS retained backup": retained_backup,
    "RDS subnet group": database_subnets,
    "RDS parameter group": database_parameters,
    "NAT gateway": networks.nat_gateway,
    "elastic IP address": networks.elastic_address,
    "network interface": networks.interface,
    "VPC endpoint": networks.endpoint,
    "flow log": networks.flow_log,
    "security group": networks.security_groups,
    "route table": networks.route_table,
    "subnet": lambda to: to.subnet,
    "internet gateway": networks.internet_gateway,
    "VPC": lambda to: to.vpc,
    "S3 bucket": bucket,
    "ECR repository": repository,
    "pull-through cache rule": cache_rule,
    "repository creation template": creation_template,
    "log group": log_group,
    "secret": secret,
    "CloudWatch alarm": alarm,
    "SNS topic": lambda to: to.topic,
    "SQS queue": queue,
    "event rule": event_rule,
    "budget": budget,
    "KMS alias": alias,
    "KMS key": lambda to: to.key,
    "instance profile": profile,
    "IAM role": lambda to: to.role,
    "IAM policy": iam_policy,
    "OIDC provider": oidc_provider,
}
"""What plants a resource of each kind, with what it needs."""

TOGETHER = tuple(plant for kind, plant in PLANTS.items() if kind != "RDS retained backup")
"""Everything that a stack may have at one time: a backup is retained once its database is gone."""


def plant_stack(owner: Owner) -> Planter:
    """A stack's worth of resources."""
    planter = Planter(owner)
    for plant in TOGETHER:
        plant(planter)
    return planter
