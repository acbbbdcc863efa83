"""The recorder: it keeps whole requests, answers as the providers do, and starts from nothing each time."""

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
    aws.ec2.Subnet(
        "subnet",
        vpc_id=vpc.id,
        cidr_block="10.0.0.0/24",
        opts=pulumi.ResourceOptions(deleted_with=vpc),
    )
    pulumi.export("vpc", vpc.id)
    pulumi.export("count", 3)
    pulumi.export("note", pulumi.Output.secret("hidden"))


def test_every_option_of_a_resource_is_kept() -> None:
    vpc = recorded(vpc_with_options).find("aws:ec2/vpc:Vpc", "vpc")
    assert (vpc.protect, vpc.retain_on_delete, vpc.delete_before_replace) == (True, True, True)
    assert (vpc.ignore_changes, vpc.replace_on_changes) == (("tags",), ("cidrBlock",))
    assert set(vpc.aliases) == {"name=old", "urn:pulumi:sample::p::aws:ec2/vpc:Vpc::older"}
    assert vpc.custom_timeouts == {"delete": "30m"}


def test_a_reference_is_recorded_with_the_property_it_goes_through() -> None:
    recording = recorded(vpc_with_options)
    subnet, vpc = recording.find("aws:ec2/subnet:Subnet", "subnet"), recording.find("aws:ec2/vpc:Vpc", "vpc")
    assert subnet.dependencies == (vpc.urn,)
    assert subnet.property_dependencies["vpcId"] == (vpc.urn,)
    assert subnet.deleted_with == vpc.urn


def test_a_secret_is_unwrapped_and_marked() -> None:
    recording = recorded(vpc_with_options)
    vpc = recording.find("aws:ec2/vpc:Vpc", "vpc")
    assert vpc.properties["tags"] == {"note": "hidden"}
    assert any(path.startswith("tags") for path in vpc.secrets)
    assert recording.outputs["note"] == "hidden"
    assert recording.secret_outputs == {"note"}


def test_an_id_has_the_form_that_aws_gives_it() -> None:
    recording = recorded(vpc_with_options)
    assert recording.outputs["vpc"].startswith("vpc-")
    assert recording.find("aws:ec2/subnet:Subnet", "subnet").properties["vpcId"] == recording.outputs["vpc"]


def test_whole_numbers_stay_whole() -> None:
    assert recorded(vpc_with_options).outputs["count"] == 3
    assert isinstance(recorded(vpc_with_options).outputs["count"], int)


def test_a_preview_knows_inputs_and_nothing_else() -> None:
    recording = recorded(vpc_with_options, is_preview=True)
    subnet = recording.find("aws:ec2/subnet:Subnet", "subnet")
    assert subnet.properties == {"vpcId": UNKNOWN, "cidrBlock": "10.0.0.0/24"}
    assert recording.outputs["vpc"] is UNKNOWN


def test_a_preview_does_not_know_what_aws_adds_to_a_mapping_of_the_programs() -> None:
    def program() -> None:
        cluster = aws.eks.Cluster("c", role_arn="arn", vpc_config=aws.eks.ClusterVpcConfigArgs(subnet_ids=["subnet-1"]))
        pulumi.export("group", cluster.vpc_config.cluster_security_group_id)

    assert recorded(program).outputs["group"].startswith("sg-")
    assert recorded(program, is_preview=True).outputs["group"] is UNKNOWN


def test_an_urn_names_every_type_above_as_the_engine_has_it() -> None:
    def program() -> None:
        outer = pulumi.ComponentResource("rtp:test:Outer", "outer")
        inner = pulumi.ComponentResource("rtp:test:Inner", "inner", None, pulumi.ResourceOptions(parent=outer))
        aws.ec2.Vpc("vpc", opts=pulumi.ResourceOptions(parent=inner))

    urn = recorded(program).find("aws:ec2/vpc:Vpc", "vpc").urn
    assert urn == "urn:pulumi:sample::ray-train-platform::rtp:test:Outer$rtp:test:Inner$aws:ec2/vpc:Vpc::vpc"


def test_one_recording_leaves_nothing_to_the_next() -> None:
    first = recorded(vpc_with_options)
    other = recorded(lambda: pulumi.export("only", 1))
    assert other.resources == ()
    assert other.outputs == {"only": 1}
    assert recorded(vpc_with_options) == first


def test_two_resources_of_one_urn_are_refused_as_the_engine_does() -> None:
    def program() -> None:
        aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16")
        aws.ec2.Vpc("vpc", cidr_block="10.1.0.0/16")

    with pytest.raises(ValueError, match="two resources have the urn"):
        recorded(program)


def test_an_unknown_provider_function_is_refused_by_name() -> None:
    def program() -> None:
        pulumi.export("zones", aws.get_availability_zones_output().names)

    with pytest.raises(Exception, match="aws:index/getAvailabilityZones:getAvailabilityZones"):
        recorded(program)


def test_an_error_of_the_program_is_the_error_of_the_recording() -> None:
    def program() -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        recorded(program)


def test_a_resource_is_not_found_by_a_name_it_does_not_have() -> None:
    with pytest.raises(KeyError, match=r"0 resources 'vpk' of aws:ec2/vpc:Vpc: \['vpc'\]"):
        recorded(vpc_with_options).find("aws:ec2/vpc:Vpc", "vpk")
