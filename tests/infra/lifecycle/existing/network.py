"""A VPC in moto that suits the platform, with functions that spoil it, and the settings that name it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import boto3
import pytest
from moto import mock_aws
from moto.servicequotas.models import ServiceQuotasBackend

from infra.lifecycle.account.aws import Client
from infra.spec.settings import StackSettings, from_mapping
from tests.infra.spec.samples import Tree, changed
from tests.infra.spec.test_existing import VPC, example

REGION = "us-east-1"
RANGES = {"us-east-1a": "100.64.0.0/18", "us-east-1b": "100.64.64.0/18"}
PUBLIC_RANGE = "10.40.0.0/24"
ACCOUNT = "123456789012"
"""Account of moto."""


@dataclass(frozen=True)
class Network:
    """A VPC with two ranges, a public subnet with a NAT gateway, and by zone a private subnet with a route to it."""

    session: boto3.Session
    ec2: Client
    vpc_id: str
    subnets: dict[str, str]
    public_id: str
    internet_id: str
    tables: dict[str, str]

    def sections(self, environment: str = "existing-vpc") -> Tree:
        """An example of the documentation with this VPC."""
        ids = {f"{VPC}.private_subnets.{zone}.id": id_ for zone, id_ in self.subnets.items()}
        return changed(example(environment), {f"{VPC}.vpc_id": self.vpc_id, "aws.allowed_accounts": [ACCOUNT], **ids})

    def settings(self, changes: Tree | None = None) -> StackSettings:
        """The example's settings with this VPC and changes."""
        return from_mapping(changed(self.sections(), changes or {}), file="sample")

    def make_subnet(self, cidr: str, *, zone: str = "us-east-1a", vpc_id: str = "") -> str:
        made = self.ec2.create_subnet(VpcId=vpc_id or self.vpc_id, CidrBlock=cidr, AvailabilityZone=zone)
        id_: str = made["Subnet"]["SubnetId"]
        return id_

    def add_endpoint(self, service: str, *, kind: str = "Interface", tables: list[str] | None = None) -> None:
        """An endpoint with private DNS, or a gateway endpoint of these route tables."""
        more = {"RouteTableIds": tables or []} if kind == "Gateway" else {"PrivateDnsEnabled": True}
        name = f"com.amazonaws.{REGION}.{service}"
        self.ec2.create_vpc_endpoint(VpcId=self.vpc_id, ServiceName=name, VpcEndpointType=kind, **more)

    def drop_default_route(self, zone: str) -> None:
        """A private subnet without a way out."""
        self.ec2.delete_route(RouteTableId=self.tables[zone], DestinationCidrBlock="0.0.0.0/0")

    def tag(self, id_: str, key: str, value: str) -> None:
        self.ec2.create_tags(Resources=[id_], Tags=[{"Key": key, "Value": value}])


@contextmanager
def account() -> Iterator[boto3.Session]:
    """An account in moto, with quotas, which moto lacks for EC2; every client of a session loads the service's model once."""
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        patch.setattr(ServiceQuotasBackend, "get_service_quota", _sufficient)
        yield boto3.Session(region_name=REGION, aws_access_key_id="x", aws_secret_access_key="x")


def _sufficient(_: ServiceQuotasBackend, service_code: str, quota_code: str) -> Tree:
    return {"ServiceCode": service_code, "QuotaCode": quota_code, "QuotaName": "Running vCPUs", "Value": 100_000.0}


def make_network(session: boto3.Session) -> Network:
    ec2 = session.client("ec2")
    vpc_id = ec2.create_vpc(CidrBlock="10.40.0.0/16")["Vpc"]["VpcId"]
    ec2.associate_vpc_cidr_block(VpcId=vpc_id, CidrBlock="100.64.0.0/16")
    ec2.modify_vpc_attribute(VpcId=vpc_id, EnableDnsHostnames={"Value": True})
    internet = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=internet, VpcId=vpc_id)
    made = ec2.create_subnet(VpcId=vpc_id, CidrBlock=PUBLIC_RANGE, AvailabilityZone="us-east-1a")
    public = made["Subnet"]["SubnetId"]
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    gateway = ec2.create_nat_gateway(SubnetId=public, AllocationId=address)["NatGateway"]["NatGatewayId"]
    subnets, tables = {}, {}
    for zone, cidr in RANGES.items():
        made = ec2.create_subnet(VpcId=vpc_id, CidrBlock=cidr, AvailabilityZone=zone)["Subnet"]["SubnetId"]
        table = ec2.create_route_table(VpcId=vpc_id)["RouteTable"]["RouteTableId"]
        ec2.associate_route_table(RouteTableId=table, SubnetId=made)
        ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", NatGatewayId=gateway)
        subnets[zone], tables[zone] = made, table
    found = Network(session, ec2, vpc_id, subnets, public, internet, tables)
    found.add_endpoint("s3", kind="Gateway", tables=list(tables.values()))
    return found
