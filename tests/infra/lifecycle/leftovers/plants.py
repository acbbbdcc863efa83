"""Plants what a stack leaves: a resource of each kind of the inventory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from infra.lifecycle.leftovers.found import Key
from infra.spec.names import database_of
from infra.spec.settings.loading import PROJECT
from tests.infra.lifecycle.leftovers.moto_gaps import add_recovery_point
from tests.infra.lifecycle.leftovers.planter import ACCOUNT, REGION, Owner, Planter, iam_document, pairs_of


def made(to: Planter, request: str, *path: str, **parameters: object) -> str:
    """Make a resource with `service.operation`; gives its ID at a path of the answer, or its name: the first parameter."""
    service, _, operation = request.partition(".")
    answer = getattr(to.client(service), operation)(**parameters)
    for part in path:
        answer = answer[0][part] if isinstance(answer, list) else answer[part]
    return str(answer if path else next(iter(parameters.values())))


def _needed(kind: str) -> Callable[[Planter], str]:
    """Gives the ID of a resource that others need, see `PLANTS`."""

    def get(to: Planter) -> str:
        return PLANTS[kind](to)

    return get


cluster, vpc, subnet, volume = map(_needed, ("EKS cluster", "VPC", "subnet", "EBS volume"))
database, file_system, vault = map(_needed, ("RDS instance", "EFS file system", "backup vault"))
key, role = map(_needed, ("KMS key", "IAM role"))


def _database(to: Planter) -> str:
    what = {"DBInstanceIdentifier": database_of(to.cluster_name), "Engine": "postgres", "Tags": to.pairs}
    login = {"MasterUsername": "mlflow", "MasterUserPassword": "not-a-secret"}
    size = {"DBInstanceClass": "db.t4g.small", "AllocatedStorage": 20}
    return made(to, "rds.create_db_instance", **what, **login, **size)


def _role(to: Planter) -> str:
    trust = iam_document("sts:AssumeRole", Principal={"Service": "ec2.amazonaws.com"})
    what = {"RoleName": f"node-of-{to.owner.environment}", "AssumeRolePolicyDocument": trust}
    name, document = made(to, "iam.create_role", **what, Tags=to.pairs), iam_document("s3:ListBucket", Resource="*")
    to.client("iam").put_role_policy(RoleName=name, PolicyName="inline", PolicyDocument=document)
    return name


def _scaling_group(to: Planter) -> str:
    """With its launch template, as EKS makes them."""
    name = f"eks-system-{to.owner.environment}"
    template = to.client("ec2").create_launch_template(
        LaunchTemplateName=f"eks-{name}",
        LaunchTemplateData={"InstanceType": "m7i.xlarge", "ImageId": "ami-12c6146b"},
        **to.tagging("launch-template", by_controller=True),
    )
    to.note("launch template", template["LaunchTemplate"]["LaunchTemplateId"])
    of_group = {"ResourceId": name, "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
    size = {"MinSize": 0, "MaxSize": 0, "AvailabilityZones": [f"{REGION}a"]}
    tags = [{**pair, **of_group} for pair in to.controller_pairs]
    template_of = {"LaunchTemplateName": f"eks-{name}"}
    request = "autoscaling.create_auto_scaling_group"
    return made(to, request, AutoScalingGroupName=name, LaunchTemplate=template_of, Tags=tags, **size)


def _instance(to: Planter) -> str:
    ec2, one = to.client("ec2"), {"MinCount": 1, "MaxCount": 1}
    what = {"ImageId": "ami-12c6146b", "InstanceType": "g4dn.xlarge", "SubnetId": subnet(to)}
    answer = ec2.run_instances(**one, **what, **to.tagging("instance", by_controller=True))
    id_ = str(answer["Instances"][0]["InstanceId"])
    for volume in ec2.describe_volumes(Filters=[{"Name": "attachment.instance-id", "Values": [id_]}])["Volumes"]:
        to.note("EBS volume", volume["VolumeId"])
    return id_


def _flow_log(to: Planter) -> str:
    bucket = made(to, "s3.create_bucket", Bucket=f"flow-logs-of-{to.owner.environment}")
    of_what = {"ResourceIds": [vpc(to)], "ResourceType": "VPC", "TrafficType": "ALL"}
    where = {"LogDestinationType": "s3", "LogDestination": f"arn:aws:s3:::{bucket}"}
    return str(to.client("ec2").create_flow_logs(**of_what, **where, **to.tagging("vpc-flow-log"))["FlowLogIds"][0])


def _security_groups(to: Planter) -> str:
    """Two, whose rules refer to each other."""
    ec2, ids = to.client("ec2"), []
    for name in ("nodes", "database"):
        answer = ec2.create_security_group(
            GroupName=name, Description=name, VpcId=vpc(to), **to.tagging("security-group")
        )
        ids.append(to.note("security group", answer["GroupId"]))
    for group, peer in (ids, ids[::-1]):
        rule = {"IpProtocol": "tcp", "FromPort": 5432, "ToPort": 5432, "UserIdGroupPairs": [{"GroupId": peer}]}
        ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[rule])
    return ids[0]


def _route_table(to: Planter) -> str:
    request, tags = "ec2.create_route_table", to.tagging("route-table")
    id_ = made(to, request, "RouteTable", "RouteTableId", VpcId=vpc(to), **tags)
    to.client("ec2").associate_route_table(RouteTableId=id_, SubnetId=subnet(to))
    return id_


def _internet_gateway(to: Planter) -> str:
    request, tags = "ec2.create_internet_gateway", to.tagging("internet-gateway")
    id_ = made(to, request, "InternetGateway", "InternetGatewayId", **tags)
    to.client("ec2").attach_internet_gateway(InternetGatewayId=id_, VpcId=vpc(to))
    return id_


def _recovery_point(to: Planter) -> str:
    """With the tags of the file system that it is of."""
    arn = f"arn:aws:backup:{REGION}:{ACCOUNT}:recovery-point:of-{to.owner.environment}"
    add_recovery_point(vault(to), arn, account=ACCOUNT, region=REGION, tags=to.owner.tags)
    return arn


def _retained_backup(to: Planter) -> str:
    to.client("rds").delete_db_instance(
        DBInstanceIdentifier=database(to), SkipFinalSnapshot=True, DeleteAutomatedBackups=False
    )
    to.keys.discard(Key("RDS instance", database(to), REGION))
    return f"db-{database(to)}"


def _bucket(to: Planter) -> str:
    """With versions, an object of two of them and a deleted one."""
    s3, name = to.client("s3"), f"{to.cluster_name}-artifacts-{ACCOUNT}"
    s3.create_bucket(Bucket=name)
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    for key in ("a", "a", "b"):
        s3.put_object(Bucket=name, Key=key, Body=b"x")
    s3.delete_object(Bucket=name, Key="b")
    return name


def _alarm(to: Planter) -> str:
    what = {"MetricName": "CPUUtilization", "Namespace": "AWS/EC2", "Statistic": "Average", "Period": 60}
    limit = {"EvaluationPeriods": 1, "Threshold": 1, "ComparisonOperator": "GreaterThanThreshold"}
    name = f"queue-of-{to.owner.environment}"
    return made(to, "cloudwatch.put_metric_alarm", AlarmName=name, Tags=to.pairs, **what, **limit)


def _event_rule(to: Planter) -> str:
    name, events = f"nightly-of-{to.owner.environment}", to.client("events")
    events.put_rule(Name=name, ScheduleExpression="rate(1 day)", Tags=to.pairs)
    events.put_targets(Rule=name, Targets=[{"Id": "one", "Arn": f"arn:aws:sns:{REGION}:{ACCOUNT}:somewhere"}])
    return name


def _budget(to: Planter) -> str:
    limit = {"BudgetLimit": {"Amount": "100", "Unit": "USD"}, "TimeUnit": "MONTHLY", "BudgetType": "COST"}
    to.client("budgets").create_budget(AccountId=ACCOUNT, Budget={"BudgetName": to.cluster_name, **limit})
    return to.cluster_name


def _profile(to: Planter) -> str:
    """The one that EKS makes for the role of nodes."""
    name = made(to, "iam.create_instance_profile", InstanceProfileName=f"eks-{to.owner.environment}")
    to.client("iam").add_role_to_instance_profile(InstanceProfileName=name, RoleName=role(to))
    return name


def _iam_policy(to: Planter) -> str:
    """One of two versions, attached to the role."""
    iam, document = to.client("iam"), iam_document("s3:ListBucket", Resource="*")
    what = {"PolicyName": f"extra-of-{to.owner.environment}", "PolicyDocument": document, "Tags": to.pairs}
    arn = made(to, "iam.create_policy", "Policy", "Arn", **what)
    iam.create_policy_version(PolicyArn=arn, PolicyDocument=document, SetAsDefault=True)
    iam.attach_role_policy(RoleName=role(to), PolicyArn=arn)
    return arn


def _load_balancer(to: Planter) -> str:
    listener = {"Protocol": "tcp", "LoadBalancerPort": 80, "InstancePort": 30080}
    tags = {"Tags": to.controller_pairs} if to.controller_pairs else {}
    what = {"Listeners": [listener], "Subnets": [subnet(to)], **tags}
    return made(to, "elb.create_load_balancer", LoadBalancerName=f"classic-{to.owner.environment}", **what)


def _fsx(to: Planter) -> str:
    what = {"FileSystemType": "LUSTRE", "StorageCapacity": 1200, "SubnetIds": [subnet(to)]}
    lustre = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 250}
    tags = {"Tags": to.pairs} if to.pairs else {}
    request = "fsx.create_file_system"
    return made(to, request, "FileSystem", "FileSystemId", LustreConfiguration=lustre, **what, **tags)


_Make = Callable[[Planter], str]

# fmt: off
_MADE: Mapping[str, _Make] = {
    "VPC": lambda to: made(to, "ec2.create_vpc", "Vpc", "VpcId", CidrBlock="10.0.0.0/16", **to.tagging("vpc")),
    "subnet": lambda to: made(
        to, "ec2.create_subnet", "Subnet", "SubnetId", VpcId=vpc(to), CidrBlock="10.0.1.0/24", **to.tagging("subnet")),
    "EKS cluster": lambda to: made(
        to, "eks.create_cluster", name=to.cluster_name, roleArn=f"arn:aws:iam::{ACCOUNT}:role/cluster",
        resourcesVpcConfig={"subnetIds": [subnet(to)]}, tags=dict(to.owner.tags)),
    "EFS file system": lambda to: made(
        to, "efs.create_file_system", "FileSystemId", CreationToken=to.cluster_name, Tags=to.pairs),
    "EBS volume": lambda to: made(  # of a claim
        to, "ec2.create_volume", "VolumeId", AvailabilityZone=f"{REGION}a", Size=100, VolumeType="gp3",
        **to.tagging("volume", by_controller=True)),
    "backup vault": lambda to: made(
        to, "backup.create_backup_vault", BackupVaultName=f"vault-of-{to.owner.environment}",
        BackupVaultTags=dict(to.owner.tags)),
    "RDS instance": _database,
    "SNS topic": lambda to: made(to, "sns.create_topic", "TopicArn", Name=f"{to.cluster_name}-alerts"),
    "KMS key": lambda to: made(
        to, "kms.create_key", "KeyMetadata", "KeyId", Tags=pairs_of(to.owner.tags, prefix="Tag")),
    "IAM role": _role,
    "Auto Scaling group": _scaling_group,
    "EC2 instance": _instance,
    "classic load balancer": _load_balancer,
    "FSx file system": _fsx,
    "flow log": _flow_log,
    "security group": _security_groups,
    "route table": _route_table,
    "internet gateway": _internet_gateway,
    "recovery point": _recovery_point,
    "RDS retained backup": _retained_backup,
    "S3 bucket": _bucket,
    "CloudWatch alarm": _alarm,
    "event rule": _event_rule,
    "budget": _budget,
    "instance profile": _profile,
    "IAM policy": _iam_policy,
    "EKS node group": lambda to: f"{to.cluster_name}:" + made(
        to, "eks.create_nodegroup", nodegroupName="system", clusterName=cluster(to), subnets=[subnet(to)],
        nodeRole=f"arn:aws:iam::{ACCOUNT}:role/node", tags=dict(to.owner.tags)),
    "launch template": lambda to: made(
        to, "ec2.create_launch_template", "LaunchTemplate", "LaunchTemplateId", **to.tagging("launch-template"),
        LaunchTemplateName=f"t4-{to.owner.environment}", LaunchTemplateData={"InstanceType": "g4dn.xlarge"}),
    "placement group": lambda to: made(
        to, "ec2.create_placement_group", GroupName=f"h100-{to.owner.environment}", Strategy="cluster",
        **to.tagging("placement-group")),
    "key pair": lambda to: made(
        to, "ec2.create_key_pair", KeyName=f"{to.cluster_name}-debug", **to.tagging("key-pair")),
    "load balancer": lambda to: made(
        to, "elbv2.create_load_balancer", "LoadBalancers", "LoadBalancerArn",
        Name=f"k8s-{to.owner.environment}", Type="network", Subnets=[subnet(to)], **to.balancer_tags),
    "target group": lambda to: made(
        to, "elbv2.create_target_group", "TargetGroups", "TargetGroupArn",
        Name=f"k8s-tg-{to.owner.environment}", Protocol="TCP", Port=443, VpcId=vpc(to), **to.balancer_tags),
    "elastic IP address": lambda to: made(
        to, "ec2.allocate_address", "AllocationId", Domain="vpc", **to.tagging("elastic-ip")),
    "NAT gateway": lambda to: made(
        to, "ec2.create_nat_gateway", "NatGateway", "NatGatewayId",
        SubnetId=subnet(to), AllocationId=PLANTS["elastic IP address"](to), **to.tagging("natgateway")),
    "network interface": lambda to: made(  # as the VPC CNI leaves it
        to, "ec2.create_network_interface", "NetworkInterface", "NetworkInterfaceId", SubnetId=subnet(to),
        Description="aws-K8S-i-0123", **to.tagging("network-interface", by_controller=True)),
    "VPC endpoint": lambda to: made(
        to, "ec2.create_vpc_endpoint", "VpcEndpoint", "VpcEndpointId", VpcId=vpc(to), VpcEndpointType="Gateway",
        ServiceName=f"com.amazonaws.{REGION}.s3", **to.tagging("vpc-endpoint")),
    "EFS mount target": lambda to: made(
        to, "efs.create_mount_target", "MountTargetId", FileSystemId=file_system(to), SubnetId=subnet(to)),
    "EFS access point": lambda to: made(  # without tags
        to, "efs.create_access_point", "AccessPointId", ClientToken=to.cluster_name, FileSystemId=file_system(to)),
    "EBS snapshot": lambda to: made(
        to, "ec2.create_snapshot", "SnapshotId", VolumeId=volume(to), **to.tagging("snapshot", by_controller=True)),
    "RDS snapshot": lambda to: made(
        to, "rds.create_db_snapshot", DBSnapshotIdentifier=f"{database(to)}-before-upgrade",
        DBInstanceIdentifier=database(to)),
    "RDS subnet group": lambda to: made(
        to, "rds.create_db_subnet_group", DBSubnetGroupName=f"mlflow-{to.owner.environment}",
        DBSubnetGroupDescription="of MLflow", SubnetIds=[subnet(to)], Tags=to.pairs),
    "RDS parameter group": lambda to: made(
        to, "rds.create_db_parameter_group", DBParameterGroupName=f"mlflow-{to.owner.environment}",
        DBParameterGroupFamily="postgres17", Description="TLS only", Tags=to.pairs),
    "ECR repository": lambda to: made(
        to, "ecr.create_repository", repositoryName=f"{to.cluster_name}/trainer", tags=to.pairs),
    "pull-through cache rule": lambda to: made(
        to, "ecr.create_pull_through_cache_rule", ecrRepositoryPrefix=f"{to.cluster_name}/quay",
        upstreamRegistryUrl="quay.io"),
    "repository creation template": lambda to: made(
        to, "ecr.create_repository_creation_template", prefix=f"{to.cluster_name}/quay",
        appliedFor=["PULL_THROUGH_CACHE"]),
    "log group": lambda to: made(  # EKS made it again after its deletion: without tags
        to, "logs.create_log_group", logGroupName=f"/aws/eks/{to.cluster_name}/cluster"),
    "secret": lambda to: made(
        to, "secretsmanager.create_secret", "ARN", Name=f"{PROJECT}/{to.owner.environment}/alert-webhook",
        SecretString="https://example.com"),
    "SQS queue": lambda to: made(
        to, "sqs.create_queue", "QueueUrl", QueueName=f"events-of-{to.owner.environment}", tags=dict(to.owner.tags)),
    "KMS alias": lambda to: made(
        to, "kms.create_alias", AliasName=f"alias/{to.cluster_name}/logs", TargetKeyId=key(to)),
    "OIDC provider": lambda to: made(
        to, "iam.create_open_id_connect_provider", "OpenIDConnectProviderArn", ThumbprintList=["a" * 40],
        Url=f"https://oidc.example.com/{to.owner.environment}", Tags=to.pairs),
}
# fmt: on


def _noted(kind: str, make: _Make) -> _Make:
    def plant(to: Planter) -> str:
        if kind not in to.ids:
            to.ids[kind] = to.note(kind, make(to))
        return to.ids[kind]

    return plant


PLANTS: Mapping[str, _Make] = {kind: _noted(kind, make) for kind, make in _MADE.items()}
"""What plants a resource of each kind once, with what it needs, and gives its ID."""


def plant_stack(owner: Owner) -> Planter:
    """Everything that a stack may have at one time: a backup is retained once its database is gone."""
    planter = Planter(owner)
    for kind, plant in PLANTS.items():
        if kind != "RDS retained backup":
            plant(planter)
    return planter
