"""The recorder: it records whole requests, responds as the providers do, and keeps no state between runs."""

from __future__ import annotations

from collections.abc import Callable

import pulumi
import pulumi_aws as aws
import pytest

from infra.preview.recording import UNKNOWN, Recording, record_program


def recorded(program: Callable[[], None], *, is_preview: bool = False) -> Recording:
    return record_program(program, stack="sample", account="111122223333", region="us-east-1", is_preview=is_preview)


def vpc_with_options() -> None:
    vpc = aws.ec2.Vpc(
        "vpc",
        cidr_block="10.0.0.0/16",
        tags={"note": pulumi.Output.secret("hidden")},
        opts=pulumi.ResourceOptions(
            protect=True,
            retain_on_delete=True,
            delete_before_replace=True,
            ignore_changes=["tags"],
            replace_on_changes=["cidrBlock"],
            aliases=[pulumi.Alias(name="old"), "urn:pulumi:sample::p::aws:ec2/vpc:Vpc::older"],
            custom_timeouts=pulumi.CustomTimeouts(delete="30m"),
        ),
    )
    aws.ec2.Subnet("subnet", vpc_id=vpc.id, cidr_block="10.0.0.0/24", opts=pulumi.ResourceOptions(deleted_with=vpc))
    pulumi.export("vpc", vpc.id)
    pulumi.export("count", 3)
    pulumi.export("note", pulumi.Output.secret("hidden"))


def test_options_references_secrets_and_ids_are_recorded() -> None:
    vpc = recorded(vpc_with_options).find("aws:ec2/vpc:Vpc", "vpc")
    assert (vpc.protect, vpc.retain_on_delete, vpc.delete_before_replace) == (True, True, True)
    assert (vpc.ignore_changes, vpc.replace_on_changes) == (("tags",), ("cidrBlock",))
    assert set(vpc.aliases) == {"name=old", "urn:pulumi:sample::p::aws:ec2/vpc:Vpc::older"}
    assert vpc.custom_timeouts == {"delete": "30m"}
    subnet = recorded(vpc_with_options).find("aws:ec2/subnet:Subnet", "subnet")
    assert subnet.dependencies == (vpc.urn,)
    assert subnet.property_dependencies["vpcId"] == (vpc.urn,)
    assert subnet.deleted_with == vpc.urn
    recording = recorded(vpc_with_options)
    vpc = recording.find("aws:ec2/vpc:Vpc", "vpc")
    assert vpc.properties["tags"] == {"note": "hidden"}
    assert any(path.startswith("tags") for path in vpc.secrets)
    assert recording.outputs["note"] == "hidden"
    assert recording.secret_outputs == {"note"}
    recording = recorded(vpc_with_options)
    assert recording.outputs["vpc"].startswith("vpc-")
    assert recording.find("aws:ec2/subnet:Subnet", "subnet").properties["vpcId"] == recording.outputs["vpc"]
    assert recording.outputs["count"] == 3
    assert isinstance(recording.outputs["count"], int)


def test_a_preview_knows_inputs_only_and_no_computed_members_of_them() -> None:
    recording = recorded(vpc_with_options, is_preview=True)
    subnet = recording.find("aws:ec2/subnet:Subnet", "subnet")
    assert subnet.properties == {"vpcId": UNKNOWN, "cidrBlock": "10.0.0.0/24"}
    assert recording.outputs["vpc"] is UNKNOWN

    def program() -> None:
        cluster = aws.eks.Cluster("c", role_arn="arn", vpc_config=aws.eks.ClusterVpcConfigArgs(subnet_ids=["subnet-1"]))
        pulumi.export("group", cluster.vpc_config.cluster_security_group_id)

    assert recorded(program).outputs["group"].startswith("sg-")
    assert recorded(program, is_preview=True).outputs["group"] is UNKNOWN


def test_a_urn_contains_every_parent_type() -> None:
    def program() -> None:
        outer = pulumi.ComponentResource("rtp:test:Outer", "outer")
        inner = pulumi.ComponentResource("rtp:test:Inner", "inner", None, pulumi.ResourceOptions(parent=outer))
        aws.ec2.Vpc("vpc", opts=pulumi.ResourceOptions(parent=inner))

    urn = recorded(program).find("aws:ec2/vpc:Vpc", "vpc").urn
    assert urn == "urn:pulumi:sample::ray-train-platform::rtp:test:Outer$rtp:test:Inner$aws:ec2/vpc:Vpc::vpc"


def test_recordings_are_independent() -> None:
    first = recorded(vpc_with_options)
    other = recorded(lambda: pulumi.export("only", 1))
    assert other.resources == ()
    assert other.outputs == {"only": 1}
    assert recorded(vpc_with_options) == first


def twice() -> None:
    for cidr in ("10.0.0.0/16", "10.1.0.0/16"):
        aws.ec2.Vpc("vpc", cidr_block=cidr)


def asking_an_unknown_function() -> None:
    pulumi.export("zones", aws.get_availability_zones_output().names)


def failing() -> None:
    raise LookupError("no such thing")


def test_an_error_of_the_program_is_raised_and_what_the_recorder_does_not_know_is_one() -> None:
    for program, message in (
        (twice, "two resources have the URN"),
        (asking_an_unknown_function, "aws:index/getAvailabilityZones:getAvailabilityZones"),
        (failing, "no such thing"),
    ):
        with pytest.raises(Exception, match=message):
            recorded(program)
    with pytest.raises(KeyError, match=r"0 resources 'vpk' of aws:ec2/vpc:Vpc: \['vpc'\]"):
        recorded(vpc_with_options).find("aws:ec2/vpc:Vpc", "vpk")
