"""A VPC of the stack's own: subnets per zone, NAT gateways, VPC endpoints and flow logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.aws.iam import Role, RoleArgs, Statement, trust_service
from infra.aws.logs import make_log_group
from infra.aws.network import Network
from infra.aws.security_groups import make_service_group


@dataclass(frozen=True, kw_only=True)
class Zone:
    """The subnets of one availability zone.

    Attributes:
        name: e.g. us-east-1a.
        private_cidr: range of the private subnet, for nodes.
        public_cidr: range of the public subnet, for NAT gateways and public load balancers.
    """

    name: str
    private_cidr: str
    public_cidr: str


@dataclass(frozen=True, kw_only=True)
class VpcArgs:
    """Inputs of `NewNetwork`.

    Attributes:
        name_prefix: part of names and of the flow log group.
        account: AWS account.
        region: AWS region.
        cidr: range of the VPC.
        zones: two or three zones.
        has_nat_per_zone: whether each zone has a NAT gateway; otherwise all zones share the first zone's.
        interface_endpoints: AWS services with an interface endpoint, e.g. ecr.api.
        flow_log_days: flow log retention in days.
        logs_key_arn: KMS key of the flow logs.
    """

    name_prefix: str
    account: pulumi.Input[str]
    region: str
    cidr: str
    zones: Sequence[Zone]
    has_nat_per_zone: bool
    interface_endpoints: Sequence[str]
    flow_log_days: int
    logs_key_arn: pulumi.Input[str]


class NewNetwork(Network):
    """The VPC with its subnets, routes, endpoints and flow logs."""

    def __init__(self, name: str, args: VpcArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__(name, opts)
        self._args = args
        self.vpc_id = self._make_vpc().id
        private = {zone.name: self._make_subnet(zone, is_public=False) for zone in args.zones}
        public = {zone.name: self._make_subnet(zone, is_public=True) for zone in args.zones}
        self.private_subnet_ids = {zone: subnet.id for zone, subnet in private.items()}
        tables = self._make_routes(private, public)
        self._make_gateway_endpoint(tables)
        self._make_interface_endpoints()
        self._make_flow_logs()
        self._finish()

    def _make_vpc(self) -> aws.ec2.Vpc:
        vpc = aws.ec2.Vpc(
            "vpc",
            cidr_block=self._args.cidr,
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags={"Name": self._args.name_prefix},
            opts=self._child_opts,
        )
        # AWS creates this group with open rules. Adopting it without rules closes it to resources that name no group.
        aws.ec2.DefaultSecurityGroup("default", vpc_id=vpc.id, ingress=[], egress=[], opts=self._child_opts)
        return vpc

    def _make_subnet(self, zone: Zone, *, is_public: bool) -> aws.ec2.Subnet:
        """A subnet, tagged for load balancer discovery (EKS user guide, "VPC requirements")."""
        kind, role = ("public", "elb") if is_public else ("private", "internal-elb")
        return aws.ec2.Subnet(
            f"{kind}-{zone.name}",
            vpc_id=self.vpc_id,
            availability_zone=zone.name,
            cidr_block=zone.public_cidr if is_public else zone.private_cidr,
            map_public_ip_on_launch=False,
            tags={"Name": f"{self._args.name_prefix}-{kind}-{zone.name}", f"kubernetes.io/role/{role}": "1"},
            opts=self._child_opts,
        )

    def _make_routes(
        self, private: Mapping[str, aws.ec2.Subnet], public: Mapping[str, aws.ec2.Subnet]
    ) -> list[aws.ec2.RouteTable]:
        """Route public subnets to the internet gateway and private ones to NAT gateways; returns all route tables."""
        internet = aws.ec2.InternetGateway("internet", vpc_id=self.vpc_id, opts=self._child_opts)
        public_table = self._make_route_table("public", public)
        internet_route = aws.ec2.Route(
            "public",
            route_table_id=public_table.id,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=internet.id,
            opts=self._child_opts,
        )
        nat_zones = list(public) if self._args.has_nat_per_zone else list(public)[:1]
        gateways = {zone: self._make_nat_gateway(zone, public[zone], internet_route) for zone in nat_zones}
        tables = [public_table]
        for zone, subnet in private.items():
            table = self._make_route_table(f"private-{zone}", {zone: subnet})
            aws.ec2.Route(
                f"private-{zone}",
                route_table_id=table.id,
                destination_cidr_block="0.0.0.0/0",
                nat_gateway_id=gateways.get(zone, gateways[nat_zones[0]]).id,
                opts=self._child_opts,
            )
            tables.append(table)
        return tables

    def _make_route_table(self, name: str, subnets: Mapping[str, aws.ec2.Subnet]) -> aws.ec2.RouteTable:
        tags = {"Name": f"{self._args.name_prefix}-{name}"}
        table = aws.ec2.RouteTable(name, vpc_id=self.vpc_id, tags=tags, opts=self._child_opts)
        kind = name.partition("-")[0]
        for zone, subnet in subnets.items():
            aws.ec2.RouteTableAssociation(
                f"{kind}-{zone}", route_table_id=table.id, subnet_id=subnet.id, opts=self._child_opts
            )
        return table

    def _make_nat_gateway(self, zone: str, subnet: aws.ec2.Subnet, internet_route: aws.ec2.Route) -> aws.ec2.NatGateway:
        tags = {"Name": f"{self._args.name_prefix}-nat-{zone}"}
        address = aws.ec2.Eip(f"nat-{zone}", domain="vpc", tags=tags, opts=self._child_opts)
        # A NAT gateway works only while its subnet has a route to the internet gateway.
        opts = pulumi.ResourceOptions(parent=self, depends_on=[internet_route])
        return aws.ec2.NatGateway(f"nat-{zone}", allocation_id=address.id, subnet_id=subnet.id, tags=tags, opts=opts)

    def _make_gateway_endpoint(self, tables: Sequence[aws.ec2.RouteTable]) -> None:
        aws.ec2.VpcEndpoint(
            "s3",
            vpc_id=self.vpc_id,
            service_name=f"com.amazonaws.{self._args.region}.s3",
            vpc_endpoint_type="Gateway",
            route_table_ids=[table.id for table in tables],
            tags={"Name": f"{self._args.name_prefix}-s3"},
            opts=self._child_opts,
        )

    def _make_interface_endpoints(self) -> None:
        group = make_service_group(
            "endpoints",
            description="Interface endpoints of AWS services",
            vpc_id=self.vpc_id,
            port=443,
            clients="HTTPS from the VPC",
            client_cidr=self._args.cidr,
            opts=self._child_opts,
        )
        for service in self._args.interface_endpoints:
            aws.ec2.VpcEndpoint(
                service,
                vpc_id=self.vpc_id,
                service_name=f"com.amazonaws.{self._args.region}.{service}",
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=list(self.private_subnet_ids.values()),
                security_group_ids=[group.id],
                tags={"Name": f"{self._args.name_prefix}-{service}"},
                opts=self._child_opts,
            )

    def _make_flow_logs(self) -> None:
        group = make_log_group(
            "flow-logs",
            group=f"/aws/vpc/{self._args.name_prefix}/flow-logs",
            days=self._args.flow_log_days,
            key=self._args.logs_key_arn,
            parent=self,
        )
        write_logs = Statement(
            sid="WriteFlowLogs",
            actions=("logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogGroups", "logs:DescribeLogStreams"),
            resources=(group.arn, pulumi.Output.concat(group.arn, ":log-stream:*")),
        )
        role = Role(
            "flow-logs",
            RoleArgs(
                description="Writes the VPC's flow logs",
                trust=trust_service("vpc-flow-logs.amazonaws.com", account=self._args.account),
                statements=(write_logs,),
            ),
            self._child_opts,
        )
        aws.ec2.FlowLog(
            "flow-logs",
            vpc_id=self.vpc_id,
            traffic_type="ALL",
            log_destination_type="cloud-watch-logs",
            log_destination=group.arn,
            iam_role_arn=role.arn,
            max_aggregation_interval=600,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[role]),
        )
