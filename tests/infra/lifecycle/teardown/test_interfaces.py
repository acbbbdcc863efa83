"""Interfaces that the VPC CNI has left are deleted, and nobody else's: with moto."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest

from infra.lifecycle.account.aws import Clients
from infra.lifecycle.leftovers.ownership import StackName
from infra.lifecycle.teardown.interfaces import delete_interfaces
from tests.infra.lifecycle.existing.network import ACCOUNT, REGION, account


@pytest.fixture
def session() -> Iterator[boto3.Session]:
    with account() as one:
        yield one


def test_only_the_stacks_unused_interfaces_are_deleted(session: boto3.Session) -> None:
    said: list[str] = []
    _interface(session, "ray-train-platform/dev")
    theirs = _interface(session, "ray-train-platform/dev-2")
    clients = Clients(session, account=ACCOUNT)
    assert delete_interfaces(clients, REGION, StackName("dev", ACCOUNT), say=said.append) == 1
    assert _interfaces(session) == {theirs}
    assert delete_interfaces(clients, REGION, StackName("dev", ACCOUNT), say=said.append) == 0
    assert said == []


def test_the_stacks_interfaces_in_a_cluster_of_others_are_known_by_its_security_groups(session: boto3.Session) -> None:
    """The VPC CNI tags the interfaces of all nodes of a cluster alike."""
    ec2 = session.resource("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")
    subnet = vpc.create_subnet(CidrBlock="10.0.0.0/24")
    groups = [vpc.create_security_group(GroupName=name, Description=name) for name in ("shared", "ours")]
    groups[1].create_tags(Tags=[{"Key": "stack", "Value": "ray-train-platform/dev"}])
    made = [subnet.create_network_interface(Groups=[groups[0].id, *more]) for more in ([], [groups[1].id])]
    for one in made:
        one.create_tags(Tags=[{"Key": "cluster.k8s.amazonaws.com/name", "Value": "shared"}])
    clients = Clients(session, account=ACCOUNT)
    assert delete_interfaces(clients, REGION, StackName("dev", ACCOUNT), say=pytest.fail) == 1
    assert _interfaces(session) == {made[0].id}


def _interface(session: boto3.Session, stack: str) -> str:
    ec2 = session.resource("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")
    vpc.create_tags(Tags=[{"Key": "stack", "Value": stack}])
    made: str = vpc.create_subnet(CidrBlock="10.0.0.0/24").create_network_interface().id
    return made


def _interfaces(session: boto3.Session) -> set[str]:
    found = session.client("ec2").describe_network_interfaces()["NetworkInterfaces"]
    return {one["NetworkInterfaceId"] for one in found}
