"""A stack that is up stays in its VPC and its cluster: each change between its own and existing ones is refused, against moto."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest

from infra.lifecycle.existing.place import Place, moves, read_place
from infra.lifecycle.preflight.checks import problems
from infra.lifecycle.stack.stage import read_account
from infra.spec.names import STACK_TAG, stack_tag
from infra.spec.release import load_release
from infra.spec.settings import StackSettings, from_mapping
from tests.infra.aws.graphs import settings_of
from tests.infra.lifecycle.existing.network import ACCOUNT, account
from tests.infra.lifecycle.preflight.test_checks import case
from tests.infra.spec.samples import Tree, changed, dev_sections
from tests.infra.spec.test_existing import CLUSTER, VPC, example

OTHER_VPC = "vpc-0fffffffffffffff0"
OURS = "ray-train-platform/place"


def settings(environment: str, changes: Tree | None = None) -> StackSettings:
    """An environment named `place`: the dev sample with a network of its own, or one of the documentation's examples."""
    sections = dev_sections() if environment == "own" else example(environment)
    named = {"environment.name": "place", "aws.allowed_accounts": [ACCOUNT]}
    return from_mapping(changed(sections, {**named, **(changes or {})}), file="sample")


@pytest.fixture
def session() -> Iterator[boto3.Session]:
    """An account."""
    with account() as one:
        yield one


def tags(kind: str, **values: str) -> list[Tree]:
    """Tags at creation."""
    return [{"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in values.items()]}]


def make_stack(session: boto3.Session, *, makes_vpc: bool, cluster: str = "rtp-place") -> str:
    """A VPC, with a security group and a node of the stack; returns the VPC's ID."""
    ec2, ours = session.client("ec2"), {STACK_TAG: OURS}
    made = ec2.create_vpc(CidrBlock="10.40.0.0/16", TagSpecifications=tags("vpc", **ours) if makes_vpc else [])
    vpc: str = made["Vpc"]["VpcId"]
    ec2.create_security_group(
        GroupName="efa", Description="efa", VpcId=vpc, TagSpecifications=tags("security-group", **ours)
    )
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.40.0.0/20")["Subnet"]["SubnetId"]
    node = tags("instance", **ours, **{f"kubernetes.io/cluster/{cluster}": "owned"})
    ec2.run_instances(ImageId="ami-12c6146b", MinCount=1, MaxCount=1, SubnetId=subnet, TagSpecifications=node)
    return vpc


def make_cluster(session: boto3.Session, name: str, **values: str) -> None:
    """A control plane, with these tags."""
    where = {"subnetIds": ["subnet-1", "subnet-2"]}
    role = f"arn:aws:iam::{ACCOUNT}:role/eks"
    session.client("eks").create_cluster(name=name, roleArn=role, resourcesVpcConfig=where, tags=values)


def answers(session: boto3.Session, one: StackSettings) -> list[str]:
    """Problems with their remedies."""
    owner = read_account(one, load_release(), session).cluster_owner
    return [f"{message} | {remedy}" for message, remedy in moves(one, read_place(one, session), owner=owner)]


@pytest.mark.parametrize("environment", ["own", "existing-vpc", "existing-cluster"])
def test_before_the_first_update_a_stack_may_go_anywhere(session: boto3.Session, environment: str) -> None:
    one = settings(environment)
    assert read_place(one, session) == Place(made_vpcs=frozenset(), vpcs=frozenset(), clusters=frozenset())
    assert answers(session, one) == []


def test_a_stack_whose_settings_say_where_it_is_stays(session: boto3.Session) -> None:
    make_stack(session, makes_vpc=True)
    make_cluster(session, "rtp-place", **{STACK_TAG: OURS})
    assert answers(session, settings("own")) == []


@pytest.mark.parametrize(("environment", "cluster"), [("existing-vpc", "rtp-place"), ("existing-cluster", "shared")])
def test_a_stack_on_existing_ground_stays_there(session: boto3.Session, environment: str, cluster: str) -> None:
    vpc = make_stack(session, makes_vpc=False, cluster=cluster)
    make_cluster(session, cluster, **({STACK_TAG: OURS} if cluster == "rtp-place" else {}))
    assert answers(session, settings(environment, {f"{VPC}.vpc_id": vpc})) == []


def test_a_vpc_of_the_stacks_own_is_not_left_for_an_existing_one(session: boto3.Session) -> None:
    vpc = make_stack(session, makes_vpc=True)
    (told,) = answers(session, settings("existing-vpc"))
    assert told.startswith(f"stack place has made VPC {vpc}, and network.existing.vpc_id is vpc-0a1b2c3d4e5f60718")
    assert "an update would delete that VPC" in told
    assert "| undo the change of the settings" in told


def test_a_vpc_of_the_stacks_own_cannot_be_declared_an_existing_one(session: boto3.Session) -> None:
    vpc = make_stack(session, makes_vpc=True)
    (told,) = answers(session, settings("existing-vpc", {f"{VPC}.vpc_id": vpc}))
    assert (
        f"stack place has made VPC {vpc}, and network.existing.vpc_id is {vpc}: an update would delete that VPC" in told
    )


def test_an_existing_vpc_is_not_left_for_a_new_one(session: boto3.Session) -> None:
    vpc = make_stack(session, makes_vpc=False)
    (told,) = answers(session, settings("own"))
    assert told.startswith(f"stack place is in the existing VPC {vpc}, and the settings have no network.existing")


def test_an_existing_vpc_is_not_left_for_another_one(session: boto3.Session) -> None:
    vpc = make_stack(session, makes_vpc=False)
    (told,) = answers(session, settings("existing-vpc", {f"{VPC}.vpc_id": OTHER_VPC}))
    assert told.startswith(f"stack place is in VPC {vpc}, and network.existing.vpc_id is {OTHER_VPC}")


@pytest.mark.parametrize(
    ("environment", "cluster", "wanted"),
    [("existing-cluster", "rtp-place", "shared"), ("existing-vpc", "shared", "rtp-place")],
)
def test_nodes_do_not_leave_their_cluster(session: boto3.Session, environment: str, cluster: str, wanted: str) -> None:
    vpc = make_stack(session, makes_vpc=False, cluster=cluster)
    (told,) = answers(session, settings(environment, {f"{VPC}.vpc_id": vpc}))
    assert told.startswith(f"the nodes of stack place are in cluster {cluster}, the settings say {wanted}")


def test_nodes_that_are_gone_keep_nobody(session: boto3.Session) -> None:
    vpc = make_stack(session, makes_vpc=False, cluster="gone")
    one = settings("existing-cluster", {f"{VPC}.vpc_id": vpc})
    ec2 = session.client("ec2")
    found = [node for group in ec2.describe_instances()["Reservations"] for node in group["Instances"]]
    ec2.terminate_instances(InstanceIds=[node["InstanceId"] for node in found])
    assert answers(session, one) == []


@pytest.mark.parametrize("owner", [OURS, "ray-train-platform/other"])
def test_a_cluster_that_a_stack_has_made_is_no_existing_one(session: boto3.Session, owner: str) -> None:
    make_cluster(session, "rtp-other", **{STACK_TAG: owner})
    (told,) = answers(session, settings("existing-cluster", {f"{CLUSTER}.name": "rtp-other"}))
    assert told.startswith(f"cluster rtp-other belongs to stack {owner}, which deletes it when it is destroyed")


def test_a_new_cluster_takes_no_name_that_is_in_use(session: boto3.Session) -> None:
    make_cluster(session, "rtp-place")
    (told,) = answers(session, settings("own"))
    assert told.startswith(
        "the account has a cluster rtp-place that is not the stack's | choose another environment.name"
    )


def test_the_resources_of_another_stack_say_nothing_about_this_one(session: boto3.Session) -> None:
    make_stack(session, makes_vpc=True)
    assert read_place(settings_of("prod"), session).vpcs == frozenset()
    assert stack_tag(settings_of("prod")) != OURS


def test_the_preflight_refuses_the_change_by_name(session: boto3.Session) -> None:
    vpc = make_stack(session, makes_vpc=True)
    one = case(sections=changed(example("existing-vpc"), {"environment.name": "place"}))
    told = [str(problem) for problem in problems(one)]
    assert any(line.startswith(f"the stack stays where it is: stack place has made VPC {vpc}") for line in told)
