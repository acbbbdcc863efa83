"""Plants compute and network: the cluster's parts, what its controllers make, and what is in the VPC."""

from __future__ import annotations

from tests.infra.lifecycle.leftovers.planter import ACCOUNT, REGION, Planter


def node_group(to: Planter) -> None:
    """A node group of the cluster."""
    to.client("eks").create_nodegroup(
        clusterName=to.cluster,
        nodegroupName="system",
        nodeRole=f"arn:aws:iam::{ACCOUNT}:role/node",
        subnets=[to.subnet],
        tags=dict(to.owner.tags),
    )
    to.note("EKS node group", f"{to.cluster_name}:system")


def scaling_group(to: Planter) -> None:
    """An Auto Scaling group that EKS made."""
    name = f"eks-system-{to.owner.environment}"
    template = to.client("ec2").create_launch_template(
        LaunchTemplateName=f"eks-{name}",
        LaunchTemplateData={"InstanceType": "m7i.xlarge", "ImageId": "ami-12c6146b"},
        **to.tagging("launch-template", by_controller=True),
    )
    to.note("launch template", template["LaunchTemplate"]["LaunchTemplateId"])
    to.client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName=name,
        MinSize=0,
        MaxSize=0,
        LaunchTemplate={"LaunchTemplateName": f"eks-{name}"},
        AvailabilityZones=[f"{REGION}a"],
        Tags=[
            {**pair, "ResourceId": name, "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
            for pair in to.controller_pairs
        ],
    )
    to.note("Auto Scaling group", name)


def instance(to: Planter) -> None:
    """An instance with its root volume."""
    ec2 = to.client("ec2")
    made = ec2.run_instances(
        ImageId="ami-12c6146b",
        InstanceType="g4dn.xlarge",
        MinCount=1,
        MaxCount=1,
        SubnetId=to.subnet,
        **to.tagging("instance", by_controller=True),
    )
    id_ = to.note("EC2 instance", made["Instances"][0]["InstanceId"])
    attached = ec2.describe_volumes(Filters=[{"Name": "attachment.instance-id", "Values": [id_]}])["Volumes"]
    for volume in attached:
        to.note("EBS volume", volume["VolumeId"])


def launch_template(to: Planter) -> None:
    """A launch template."""
    made = to.client("ec2").create_launch_template(
        LaunchTemplateName=f"t4-{to.owner.environment}",
        LaunchTemplateData={"InstanceType": "g4dn.xlarge"},
        **to.tagging("launch-template"),
    )
    to.note("launch template", made["LaunchTemplate"]["LaunchTemplateId"])


def placement_group(to: Planter) -> None:
    """A placement group."""
    name = f"h100-{to.owner.environment}"
    to.client("ec2").create_placement_group(GroupName=name, Strategy="cluster", **to.tagging("placement-group"))
    to.note("placement group", name)


def key_pair(to: Planter) -> None:
    """An SSH key."""
    name = f"{to.cluster_name}-debug"
    to.client("ec2").create_key_pair(KeyName=name, **to.tagging("key-pair"))
    to.note("key pair", name)


def load_balancer(to: Planter) -> None:
    """A load balancer of AWS Load Balancer Controller."""
    made = to.client("elbv2").create_load_balancer(
        Name=f"k8s-{to.owner.environment}",
        Type="network",
        Subnets=[to.subnet],
        **to.if_any(Tags=to.balancer_pairs),
    )
    to.note("load balancer", made["LoadBalancers"][0]["LoadBalancerArn"])


def target_group(to: Planter) -> None:
    """A target group of the same controller."""
    made = to.client("elbv2").create_target_group(
        Name=f"k8s-tg-{to.owner.environment}",
        Protocol="TCP",
        Port=443,
        VpcId=to.vpc,
        **to.if_any(Tags=to.balancer_pairs),
    )
    to.note("target group", made["TargetGroups"][0]["TargetGroupArn"])


def classic_load_balancer(to: Planter) -> None:
    """A classic load balancer of a Service."""
    name = f"classic-{to.owner.environment}"
    to.client("elb").create_load_balancer(
        LoadBalancerName=name,
        Listeners=[{"Protocol": "tcp", "LoadBalancerPort": 80, "InstancePort": 30080}],
        Subnets=[to.subnet],
        **to.if_any(Tags=to.controller_pairs),
    )
    to.note("classic load balancer", name)


def nat_gateway(to: Planter) -> None:
    """A NAT gateway with its address."""
    ec2, address = to.client("ec2"), elastic_address(to)
    made = ec2.create_nat_gateway(SubnetId=to.subnet, AllocationId=address, **to.tagging("natgateway"))
    to.note("NAT gateway", made["NatGateway"]["NatGatewayId"])


def elastic_address(to: Planter) -> str:
    """An address."""
    made = to.client("ec2").allocate_address(Domain="vpc", **to.tagging("elastic-ip"))
    return to.note("elastic IP address", made["AllocationId"])


def interface(to: Planter) -> None:
    """An interface that the VPC CNI left."""
    made = to.client("ec2").create_network_interface(
        SubnetId=to.subnet,
        Description="aws-K8S-i-0123",
        **to.tagging("network-interface", by_controller=True),
    )
    to.note("network interface", made["NetworkInterface"]["NetworkInterfaceId"])


def endpoint(to: Planter) -> None:
    """A gateway endpoint."""
    made = to.client("ec2").create_vpc_endpoint(
        VpcId=to.vpc,
        ServiceName=f"com.amazonaws.{REGION}.s3",
        VpcEndpointType="Gateway",
        **to.tagging("vpc-endpoint"),
    )
    to.note("VPC endpoint", made["VpcEndpoint"]["VpcEndpointId"])


def flow_log(to: Planter) -> None:
    """The flow log of the VPC."""
    bucket = f"flow-logs-of-{to.owner.environment}"
    to.client("s3").create_bucket(Bucket=bucket)
    made = to.client("ec2").create_flow_logs(
        ResourceIds=[to.vpc],
        ResourceType="VPC",
        TrafficType="ALL",
        LogDestinationType="s3",
        LogDestination=f"arn:aws:s3:::{bucket}",
        **to.tagging("vpc-flow-log"),
    )
    to.note("flow log", made["FlowLogIds"][0])


def security_groups(to: Planter) -> None:
    """Two groups whose rules refer to each other."""
    ec2, ids = to.client("ec2"), []
    for name in ("nodes", "database"):
        made = ec2.create_security_group(GroupName=name, Description=name, VpcId=to.vpc, **to.tagging("security-group"))
        ids.append(to.note("security group", made["GroupId"]))
    for group, peer in (ids, ids[::-1]):
        rule = {"IpProtocol": "tcp", "FromPort": 5432, "ToPort": 5432, "UserIdGroupPairs": [{"GroupId": peer}]}
        ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[rule])


def route_table(to: Planter) -> None:
    """A route table that a subnet uses."""
    ec2 = to.client("ec2")
    made = ec2.create_route_table(VpcId=to.vpc, **to.tagging("route-table"))["RouteTable"]["RouteTableId"]
    ec2.associate_route_table(RouteTableId=made, SubnetId=to.subnet)
    to.note("route table", made)


def internet_gateway(to: Planter) -> None:
    """An internet gateway of the VPC."""
    ec2 = to.client("ec2")
    made = ec2.create_internet_gateway(**to.tagging("internet-gateway"))["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=made, VpcId=to.vpc)
    to.note("internet gateway", made)
