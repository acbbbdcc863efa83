"""Ray's own AWS provider makes the machines of a launcher file, in an EC2 that moto serves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from ray.autoscaler._private import commands
from ray.autoscaler._private.aws import config as aws_config
from ray.autoscaler._private.aws.node_provider import AWSNodeProvider
from ray.autoscaler._private.aws.utils import client_cache, resource_cache
from ray.autoscaler.tags import TAG_RAY_NODE_KIND, TAG_RAY_USER_NODE_TYPE

from tests.engines.s3 import REGION, S3Api, s3_server
from tests.training.cluster.team_cluster import dev_outputs
from tests.training.cluster.team_cluster import target as dev_stack
from tests.training.vms.clusters import aws_file

pytestmark = pytest.mark.extended

_PROFILES = ("ray-head", "ray-worker")
_TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


@dataclass(frozen=True)
class Account:
    """An account with the stack's network, and the image and instance profiles that a cluster names."""

    ec2: Any
    network: dict[str, Any]
    ami: str

    def file(self, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of several types
        """A launcher file for the stack in this account."""
        return aws_file(dev_stack(**{**dev_outputs(), "network": self.network}), ami=self.ami, **changes)


@pytest.fixture(scope="module")
def aws_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Api]:
    with s3_server(tmp_path_factory.mktemp("aws")) as api:
        yield api


@pytest.fixture
def account(aws_api: S3Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """The account, as Ray's provider in this process reaches it."""
    for name, value in {**aws_api.environment(), "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    caches = (resource_cache, client_cache, aws_config._get_subnets_or_die)
    for cache in caches:
        cache.cache_clear()
    ec2 = boto3.client("ec2", REGION)
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{number}.0/24", AvailabilityZone=f"{REGION}{zone}")["Subnet"]
        for number, zone in enumerate("ab")
    ]
    group = ec2.create_security_group(GroupName="nodes", Description="nodes", VpcId=vpc)["GroupId"]
    _make_profiles()
    yield Account(
        ec2=ec2,
        network={"private_subnets": [one["SubnetId"] for one in subnets], "node_security_group": group},
        ami=ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"],
    )
    for cache in caches:
        cache.cache_clear()


def _make_profiles() -> None:
    iam = boto3.client("iam", REGION)
    known = {one["InstanceProfileName"] for one in iam.list_instance_profiles()["InstanceProfiles"]}
    for name in set(_PROFILES) - known:
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(_TRUST))
        iam.create_instance_profile(InstanceProfileName=name)
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)


def _launch(resolved: dict[str, Any], kind: str) -> dict[str, Any]:
    """Make a machine as `ray up` makes the head, and the autoscaler a worker; moto makes `MinCount` of them, which Ray sets to 1."""
    provider = AWSNodeProvider(resolved["provider"], resolved["cluster_name"])
    tags = {TAG_RAY_NODE_KIND: kind, TAG_RAY_USER_NODE_TYPE: kind}
    [made] = provider.create_node(resolved["available_node_types"][kind]["node_config"], tags, 1)
    found: dict[str, Any] = provider.ec2.meta.client.describe_instances(InstanceIds=[made])
    machine: dict[str, Any] = found["Reservations"][0]["Instances"][0]
    return machine


def test_the_head_comes_up_as_the_file_says_and_ray_adds_nothing_but_a_key_pair(account: Account) -> None:
    groups = account.ec2.describe_security_groups()["SecurityGroups"]
    document = account.file()
    resolved = commands._bootstrap_config(document, no_config_cache=True)
    assert account.ec2.describe_security_groups()["SecurityGroups"] == groups
    for kind in ("head", "worker"):
        node = resolved["available_node_types"][kind]["node_config"]
        written = document["available_node_types"][kind]["node_config"]
        assert {name: node[name] for name in written} == written
        assert node["KeyName"].startswith("ray-autoscaler")
    assert Path(resolved["auth"]["ssh_private_key"]).stat().st_mode & 0o077 == 0

    head = _launch(resolved, "head")
    assert (head["InstanceType"], head["ImageId"]) == (dev_stack().outputs.head_instance_type, account.ami)
    assert head["SubnetId"] in account.network["private_subnets"]
    assert not head.get("PublicIpAddress")
    assert [one["GroupId"] for one in head["SecurityGroups"]] == [account.network["node_security_group"]]
    assert head["IamInstanceProfile"]["Arn"].endswith("instance-profile/ray-head")
    assert head["MetadataOptions"]["HttpTokens"] == "required"
    assert "InstanceLifecycle" not in head
    tags = {one["Key"]: one["Value"] for one in head["Tags"]}
    assert (tags["stack"], tags["ray-cluster-name"]) == ("ray-train-platform/dev", "ray-dev")
    of_head = [{"Name": "attachment.instance-id", "Values": [head["InstanceId"]]}]
    [disk] = account.ec2.describe_volumes(Filters=of_head)["Volumes"]
    assert disk["Encrypted"] is True
