"""Plants what a stack leaves: one function for each kind of the inventory."""

from __future__ import annotations

from collections.abc import Callable

from infra.lifecycle.leftovers.found import Key
from infra.spec.settings.loading import PROJECT
from tests.infra.lifecycle.leftovers.moto_gaps import add_recovery_point
from tests.infra.lifecycle.leftovers.planter import ACCOUNT, REGION, Owner, Planter, iam_document

PLANTS: dict[str, Callable[[Planter], str]] = {
    "EKS cluster": lambda to: to.cluster,
    "EFS file system": lambda to: to.file_system,
    "EBS volume": lambda to: to.volume,
    "backup vault": lambda to: to.vault,
    "RDS instance": lambda to: to.database,
    "subnet": lambda to: to.subnet,
    "VPC": lambda to: to.vpc,
    "SNS topic": lambda to: to.topic,
    "KMS key": lambda to: to.key,
    "IAM role": lambda to: to.role,
}
"""What plants a resource of each kind, with what it needs, and gives its ID."""


def plant_stack(owner: Owner) -> Planter:
    """Everything that a stack may have at one time: a backup is retained once its database is gone."""
    planter = Planter(owner)
    for kind, plant in PLANTS.items():
        if kind != "RDS retained backup":
            plant(planter)
    return planter


def _plants(kind: str) -> Callable[[Callable[[Planter], object]], None]:
    """Adds a function to `PLANTS` that makes a resource of this kind and gives its ID."""

    def register(make: Callable[[Planter], object]) -> None:
        PLANTS[kind] = lambda to: to.note(kind, str(make(to)))

    return register


@_plants("EKS node group")
def _(to: Planter) -> object:
    where = {"clusterName": to.cluster, "nodegroupName": "system", "subnets": [to.subnet]}
    role = f"arn:aws:iam::{ACCOUNT}:role/node"
    to.client("eks").create_nodegroup(**where, nodeRole=role, tags=dict(to.owner.tags))
    return f"{to.cluster_name}:system"


@_plants("Auto Scaling group")
def _(to: Planter) -> object:
    """With its launch template, as EKS makes them."""
    name = f"eks-system-{to.owner.environment}"
    template = to.client("ec2").create_launch_template(
        LaunchTemplateName=f"eks-{name}",
        LaunchTemplateData={"InstanceType": "m7i.xlarge", "ImageId": "ami-12c6146b"},
        **to.tagging("launch-template", by_controller=True),
    )
    to.note("launch template", template["LaunchTemplate"]["LaunchTemplateId"])
    of_group = {"ResourceId": name, "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
    to.client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName=name,
        MinSize=0,
        MaxSize=0,
        LaunchTemplate={"LaunchTemplateName": f"eks-{name}"},
        AvailabilityZones=[f"{REGION}a"],
        Tags=[{**pair, **of_group} for pair in to.controller_pairs],
    )
    return name


@_plants("EC2 instance")
def _(to: Planter) -> object:
    """With its root volume."""
    ec2, one = to.client("ec2"), {"MinCount": 1, "MaxCount": 1}
    what = {"ImageId": "ami-12c6146b", "InstanceType": "g4dn.xlarge", "SubnetId": to.subnet}
    made = ec2.run_instances(**one, **what, **to.tagging("instance", by_controller=True))
    id_ = made["Instances"][0]["InstanceId"]
    for volume in ec2.describe_volumes(Filters=[{"Name": "attachment.instance-id", "Values": [id_]}])["Volumes"]:
        to.note("EBS volume", volume["VolumeId"])
    return id_


@_plants("launch template")
def _(to: Planter) -> object:
    what = {"LaunchTemplateName": f"t4-{to.owner.environment}", "LaunchTemplateData": {"InstanceType": "g4dn.xlarge"}}
    made = to.client("ec2").create_launch_template(**what, **to.tagging("launch-template"))
    return made["LaunchTemplate"]["LaunchTemplateId"]


@_plants("placement group")
def _(to: Planter) -> object:
    name = f"h100-{to.owner.environment}"
    to.client("ec2").create_placement_group(GroupName=name, Strategy="cluster", **to.tagging("placement-group"))
    return name


@_plants("key pair")
def _(to: Planter) -> object:
    name = f"{to.cluster_name}-debug"
    to.client("ec2").create_key_pair(KeyName=name, **to.tagging("key-pair"))
    return name


@_plants("load balancer")
def _(to: Planter) -> object:
    what = {"Name": f"k8s-{to.owner.environment}", "Type": "network", "Subnets": [to.subnet]}
    return to.client("elbv2").create_load_balancer(**what, **to.balancer_tags)["LoadBalancers"][0]["LoadBalancerArn"]


@_plants("target group")
def _(to: Planter) -> object:
    what = {"Name": f"k8s-tg-{to.owner.environment}", "Protocol": "TCP", "Port": 443, "VpcId": to.vpc}
    return to.client("elbv2").create_target_group(**what, **to.balancer_tags)["TargetGroups"][0]["TargetGroupArn"]


@_plants("classic load balancer")
def _(to: Planter) -> object:
    name, listener = f"classic-{to.owner.environment}", {"LoadBalancerPort": 80, "InstancePort": 30080}
    tags = {"Tags": to.controller_pairs} if to.controller_pairs else {}
    to.client("elb").create_load_balancer(
        LoadBalancerName=name, Listeners=[{"Protocol": "tcp", **listener}], Subnets=[to.subnet], **tags
    )
    return name


@_plants("elastic IP address")
def _(to: Planter) -> object:
    return to.client("ec2").allocate_address(Domain="vpc", **to.tagging("elastic-ip"))["AllocationId"]


@_plants("NAT gateway")
def _(to: Planter) -> object:
    where = {"SubnetId": to.subnet, "AllocationId": PLANTS["elastic IP address"](to)}
    return to.client("ec2").create_nat_gateway(**where, **to.tagging("natgateway"))["NatGateway"]["NatGatewayId"]


@_plants("network interface")
def _(to: Planter) -> object:
    """As the VPC CNI leaves it."""
    tags = to.tagging("network-interface", by_controller=True)
    made = to.client("ec2").create_network_interface(SubnetId=to.subnet, Description="aws-K8S-i-0123", **tags)
    return made["NetworkInterface"]["NetworkInterfaceId"]


@_plants("VPC endpoint")
def _(to: Planter) -> object:
    what = {"VpcId": to.vpc, "ServiceName": f"com.amazonaws.{REGION}.s3", "VpcEndpointType": "Gateway"}
    return to.client("ec2").create_vpc_endpoint(**what, **to.tagging("vpc-endpoint"))["VpcEndpoint"]["VpcEndpointId"]


@_plants("flow log")
def _(to: Planter) -> object:
    bucket = f"flow-logs-of-{to.owner.environment}"
    to.client("s3").create_bucket(Bucket=bucket)
    of_what = {"ResourceIds": [to.vpc], "ResourceType": "VPC", "TrafficType": "ALL"}
    where = {"LogDestinationType": "s3", "LogDestination": f"arn:aws:s3:::{bucket}"}
    return to.client("ec2").create_flow_logs(**of_what, **where, **to.tagging("vpc-flow-log"))["FlowLogIds"][0]


@_plants("security group")
def _(to: Planter) -> object:
    """Two, whose rules refer to each other."""
    ec2, ids = to.client("ec2"), []
    for name in ("nodes", "database"):
        made = ec2.create_security_group(GroupName=name, Description=name, VpcId=to.vpc, **to.tagging("security-group"))
        ids.append(to.note("security group", made["GroupId"]))
    for group, peer in (ids, ids[::-1]):
        rule = {"IpProtocol": "tcp", "FromPort": 5432, "ToPort": 5432, "UserIdGroupPairs": [{"GroupId": peer}]}
        ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[rule])
    return ids[0]


@_plants("route table")
def _(to: Planter) -> object:
    """One that a subnet uses."""
    ec2 = to.client("ec2")
    made = ec2.create_route_table(VpcId=to.vpc, **to.tagging("route-table"))["RouteTable"]["RouteTableId"]
    ec2.associate_route_table(RouteTableId=made, SubnetId=to.subnet)
    return made


@_plants("internet gateway")
def _(to: Planter) -> object:
    ec2 = to.client("ec2")
    made = ec2.create_internet_gateway(**to.tagging("internet-gateway"))["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=made, VpcId=to.vpc)
    return made


@_plants("EFS mount target")
def _(to: Planter) -> object:
    return to.client("efs").create_mount_target(FileSystemId=to.file_system, SubnetId=to.subnet)["MountTargetId"]


@_plants("EFS access point")
def _(to: Planter) -> object:
    """Without tags."""
    made = to.client("efs").create_access_point(ClientToken=to.cluster_name, FileSystemId=to.file_system)
    return made["AccessPointId"]


@_plants("FSx file system")
def _(to: Planter) -> object:
    what = {"FileSystemType": "LUSTRE", "StorageCapacity": 1200, "SubnetIds": [to.subnet]}
    lustre = {"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 250}
    tags = {"Tags": to.pairs} if to.pairs else {}
    return to.client("fsx").create_file_system(**what, LustreConfiguration=lustre, **tags)["FileSystem"]["FileSystemId"]


@_plants("EBS snapshot")
def _(to: Planter) -> object:
    tags = to.tagging("snapshot", by_controller=True)
    return to.client("ec2").create_snapshot(VolumeId=to.volume, **tags)["SnapshotId"]


@_plants("recovery point")
def _(to: Planter) -> object:
    """With the tags of the file system that it is of."""
    arn = f"arn:aws:backup:{REGION}:{ACCOUNT}:recovery-point:of-{to.owner.environment}"
    add_recovery_point(to.vault, arn, account=ACCOUNT, region=REGION, tags=to.owner.tags)
    return arn


@_plants("RDS snapshot")
def _(to: Planter) -> object:
    name = f"{to.database}-before-upgrade"
    to.client("rds").create_db_snapshot(DBSnapshotIdentifier=name, DBInstanceIdentifier=to.database)
    return name


@_plants("RDS retained backup")
def _(to: Planter) -> object:
    """Of a database that is gone."""
    to.client("rds").delete_db_instance(
        DBInstanceIdentifier=to.database, SkipFinalSnapshot=True, DeleteAutomatedBackups=False
    )
    to.keys.discard(Key("RDS instance", to.database, REGION))
    return f"db-{to.database}"


@_plants("RDS subnet group")
def _(to: Planter) -> object:
    name = f"mlflow-{to.owner.environment}"
    to.client("rds").create_db_subnet_group(
        DBSubnetGroupName=name, DBSubnetGroupDescription="of MLflow", SubnetIds=[to.subnet], Tags=to.pairs
    )
    return name


@_plants("RDS parameter group")
def _(to: Planter) -> object:
    name = f"mlflow-{to.owner.environment}"
    to.client("rds").create_db_parameter_group(
        DBParameterGroupName=name, DBParameterGroupFamily="postgres17", Description="TLS only", Tags=to.pairs
    )
    return name


@_plants("S3 bucket")
def _(to: Planter) -> object:
    """With versions, an object of two of them and a deleted one."""
    s3, name = to.client("s3"), f"{to.cluster_name}-artifacts-{ACCOUNT}"
    s3.create_bucket(Bucket=name)
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    for key in ("a", "a", "b"):
        s3.put_object(Bucket=name, Key=key, Body=b"x")
    s3.delete_object(Bucket=name, Key="b")
    return name


@_plants("ECR repository")
def _(to: Planter) -> object:
    name = f"{to.cluster_name}/trainer"
    to.client("ecr").create_repository(repositoryName=name, tags=to.pairs)
    return name


@_plants("pull-through cache rule")
def _(to: Planter) -> object:
    prefix = f"{to.cluster_name}/quay"
    to.client("ecr").create_pull_through_cache_rule(ecrRepositoryPrefix=prefix, upstreamRegistryUrl="quay.io")
    return prefix


@_plants("repository creation template")
def _(to: Planter) -> object:
    prefix = f"{to.cluster_name}/quay"
    to.client("ecr").create_repository_creation_template(prefix=prefix, appliedFor=["PULL_THROUGH_CACHE"])
    return prefix


@_plants("log group")
def _(to: Planter) -> object:
    """One that EKS made again after its deletion: without tags."""
    name = f"/aws/eks/{to.cluster_name}/cluster"
    to.client("logs").create_log_group(logGroupName=name)
    return name


@_plants("secret")
def _(to: Planter) -> object:
    name = f"{PROJECT}/{to.owner.environment}/alert-webhook"
    return to.client("secretsmanager").create_secret(Name=name, SecretString="https://example.com")["ARN"]


@_plants("CloudWatch alarm")
def _(to: Planter) -> object:
    name = f"queue-of-{to.owner.environment}"
    what = {"MetricName": "CPUUtilization", "Namespace": "AWS/EC2", "Statistic": "Average", "Period": 60}
    limit = {"EvaluationPeriods": 1, "Threshold": 1, "ComparisonOperator": "GreaterThanThreshold"}
    to.client("cloudwatch").put_metric_alarm(AlarmName=name, Tags=to.pairs, **what, **limit)
    return name


@_plants("SQS queue")
def _(to: Planter) -> object:
    name = f"events-of-{to.owner.environment}"
    return to.client("sqs").create_queue(QueueName=name, tags=dict(to.owner.tags))["QueueUrl"]


@_plants("event rule")
def _(to: Planter) -> object:
    """With a target."""
    name, events = f"nightly-of-{to.owner.environment}", to.client("events")
    events.put_rule(Name=name, ScheduleExpression="rate(1 day)", Tags=to.pairs)
    events.put_targets(Rule=name, Targets=[{"Id": "one", "Arn": f"arn:aws:sns:{REGION}:{ACCOUNT}:somewhere"}])
    return name


@_plants("budget")
def _(to: Planter) -> object:
    limit = {"Amount": "100", "Unit": "USD"}
    made = {"BudgetName": to.cluster_name, "BudgetLimit": limit, "TimeUnit": "MONTHLY", "BudgetType": "COST"}
    to.client("budgets").create_budget(AccountId=ACCOUNT, Budget=made)
    return to.cluster_name


@_plants("KMS alias")
def _(to: Planter) -> object:
    name = f"alias/{to.cluster_name}/logs"
    to.client("kms").create_alias(AliasName=name, TargetKeyId=to.key)
    return name


@_plants("instance profile")
def _(to: Planter) -> object:
    """The one that EKS makes for the role of nodes."""
    name, iam = f"eks-{to.owner.environment}", to.client("iam")
    iam.create_instance_profile(InstanceProfileName=name)
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=to.role)
    return name


@_plants("IAM policy")
def _(to: Planter) -> object:
    """One of two versions, attached to the role."""
    iam, document = to.client("iam"), iam_document("s3:ListBucket", Resource="*")
    name = f"extra-of-{to.owner.environment}"
    arn = iam.create_policy(PolicyName=name, PolicyDocument=document, Tags=to.pairs)["Policy"]["Arn"]
    iam.create_policy_version(PolicyArn=arn, PolicyDocument=document, SetAsDefault=True)
    iam.attach_role_policy(RoleName=to.role, PolicyArn=arn)
    return arn


@_plants("OIDC provider")
def _(to: Planter) -> object:
    made = to.client("iam").create_open_id_connect_provider(
        Url=f"https://oidc.example.com/{to.owner.environment}", ThumbprintList=["a" * 40], Tags=to.pairs
    )
    return made["OpenIDConnectProviderArn"]
