"""Whose a resource is, as a pure function of tags, names and what it is a part of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from infra.lifecycle.leftovers.found import Found, Key
from infra.lifecycle.leftovers.inventory import KINDS
from infra.lifecycle.leftovers.ownership import StackName, owned
from infra.lifecycle.stack.state_bucket import state_bucket_name
from infra.spec import names
from infra.spec.settings.loading import PROJECT
from tests.infra.aws.graphs import ENVIRONMENTS, settings_of

DEV = StackName("dev", "111122223333")
ENVIRONMENT_NAMES = st.from_regex(r"[a-z][a-z0-9-]{1,18}[a-z0-9]", fullmatch=True)
FIXED_NAMES = {
    "EKS cluster": "rtp-{0}",
    "RDS instance": "rtp-{0}-mlflow",
    "S3 bucket": "rtp-{0}-checkpoints-111122223333",
    "ECR repository": "rtp-{0}/trainer",
    "pull-through cache rule": "rtp-{0}/quay",
    "log group": "/aws/vpc/rtp-{0}/flow-logs",
    "secret": f"{PROJECT}/{{0}}/alert-webhook",
    "SNS topic": "rtp-{0}-alerts",
    "budget": "rtp-{0}",
    "KMS alias": "alias/rtp-{0}/logs",
}


def evidence(found: Found, stack: StackName = DEV) -> str | None:
    """Why a resource is the stack's; None if it is not."""
    ours = owned([found], stack)
    return ours[found.key][1].says if ours else None


def found(kind: str = "EBS volume", id_: str = "vol-1", **tags: str) -> Found:
    return Found(id=id_, kind=kind, region="us-east-1", tags=tags)


def test_tags_decide() -> None:
    ours: list[dict[str, str]] = [
        {"stack": "ray-train-platform/dev"},
        {"kubernetes.io/cluster/rtp-dev": "owned"},
        {"k8s.io/cluster-autoscaler/rtp-dev": "owned"},
        {"aws:eks:cluster-name": "rtp-dev"},
        {"eks:cluster-name": "rtp-dev"},
        {"elbv2.k8s.aws/cluster": "rtp-dev"},
        {"cluster.k8s.amazonaws.com/name": "rtp-dev"},
        {"KubernetesCluster": "rtp-dev"},
        {"stack": "ray-train-platform/dev", "kubernetes.io/cluster/rtp-dev-2": "owned"},
    ]
    for tags in ours:
        assert evidence(found(**tags)) == f"tag {next(iter(tags))}"
    others: list[dict[str, str]] = [
        {"kubernetes.io/cluster/rtp-dev": "shared"},
        {"kubernetes.io/cluster/rtp-dev-2": "owned"},
        {"k8s.io/cluster-autoscaler/enabled": "true"},
        {"stack": "ray-train-platform/dev-2"},
        {"stack": "other-platform/dev"},
        {"Stack": "ray-train-platform/dev"},
        {"platform": "ray-train-platform", "environment": "dev"},
        {"stack": "ray-train-platform/dev-2", "kubernetes.io/cluster/rtp-dev": "owned"},
        {},
    ]
    for tags in others:
        assert evidence(found(**tags)) is None, tags


def test_what_the_drivers_of_a_cluster_make_is_in_no_state() -> None:
    drivers = ("kubernetes.io/cluster/rtp-dev", "ebs.csi.aws.com/cluster", "node.k8s.amazonaws.com/instance_id")
    for tags in ({}, *({name: "owned"} for name in drivers)):
        ((_, says),) = owned([found(stack=DEV.tag, **tags)], DEV).values()
        assert says.is_made_by_stack is (tags == {}), tags


def test_a_fixed_name_is_evidence_without_tags_and_a_similar_one_is_not() -> None:
    assert set(FIXED_NAMES) <= set(KINDS)
    for kind, name in FIXED_NAMES.items():
        assert evidence(found(kind, name.format("dev"))) == "name", kind
        assert evidence(found(kind, name.format("dev"), stack="ray-train-platform/dev-2")) is None, kind
    for kind, name in (
        ("EKS cluster", "rtp-dev-extra"),
        ("EKS cluster", "rtp-dev2"),
        ("RDS instance", "rtp-dev-2-mlflow"),
        ("S3 bucket", "rtp-dev-checkpoints-999988887777"),
        ("S3 bucket", "rtp-dev-backup-111122223333"),
        ("log group", "/aws/eks/rtp-dev"),
        ("log group", "/aws/rds/instance/rtp-dev-2-mlflow/postgresql"),
        ("KMS alias", "alias/rtp-dev2/logs"),
        ("EBS volume", "rtp-dev"),
    ):
        assert evidence(found(kind, name)) is None, name


@given(ENVIRONMENT_NAMES, ENVIRONMENT_NAMES, st.sampled_from(sorted(FIXED_NAMES)))
def test_a_name_belongs_to_one_environment_only(one: str, other: str, kind: str) -> None:
    resource = found(kind, FIXED_NAMES[kind].format(one))
    assert evidence(resource, StackName(one, DEV.account)) == "name"
    if one != other:
        assert evidence(resource, StackName(other, DEV.account)) is None


def test_the_names_are_those_of_the_settings() -> None:
    for environment in ENVIRONMENTS:
        settings = settings_of(environment)
        stack = StackName(settings.environment.name, "111122223333")
        assert (stack.tag, stack.cluster) == (names.stack_tag(settings), names.cluster_name(settings))
        assert StackName.of_tag(stack.tag, account=stack.account) == stack
        given = {
            "RDS instance": names.database_identifier(settings),
            "SNS topic": names.alert_topic_name(settings),
            "log group": names.container_log_group(settings) or "",
            "S3 bucket": state_bucket_name(settings, account=stack.account),
        }
        assert {kind: evidence(found(kind, name), stack) for kind, name in given.items()} == dict.fromkeys(
            given, "name"
        )


def test_a_part_belongs_to_its_whole_unless_its_tags_say_otherwise() -> None:
    vpc = found("VPC", "vpc-1", stack=DEV.tag)
    part = Found(id="sg-1", kind="security group", region="us-east-1", parents=(vpc.key,))
    theirs = Found(id="sg-2", kind="security group", region="us-east-1", parents=(vpc.key,), tags={"stack": "x"})
    inner = Found(id="eni-1", kind="network interface", region="us-east-1", parents=(part.key,))
    elsewhere = Found(id="sg-3", kind="security group", region="us-east-1", parents=(Key("VPC", "vpc-2", "us-east-1"),))
    ours = owned([inner, elsewhere, theirs, part, vpc], DEV)
    assert {key.id: says.says for key, (_, says) in ours.items()} == {
        "vpc-1": "tag stack",
        "sg-1": "part of VPC vpc-1",
        "eni-1": "part of security group sg-1",
    }
    assert set(owned([part], DEV, known=[vpc.key])) == {part.key}
    assert owned([part], DEV) == {}


def test_an_interface_that_only_a_shared_cluster_names_is_of_the_stack_whose_security_group_it_holds() -> None:
    group = found("security group", "sg-1", stack=DEV.tag)
    shared = {"cluster.k8s.amazonaws.com/name": "shared"}
    for tags, says in (
        (shared, "holds security group sg-1"),
        ({**shared, "stack": "ray-train-platform/dev-2"}, None),
        ({}, None),
    ):
        interface = Found(id="eni-1", kind="network interface", region="us-east-1", tags=tags, holds=(group.key,))
        ours = owned([interface, group], DEV)
        assert (ours[interface.key][1].says if interface.key in ours else None) == says, tags
        assert owned([interface], DEV) == {}, tags


def test_equal_ids_of_two_regions_are_two_resources() -> None:
    here = Found(id="rtp-dev", kind="EKS cluster", region="us-east-1")
    there = Found(id="rtp-dev", kind="EKS cluster", region="eu-west-1")
    assert len(owned([here, there], DEV)) == 2


def test_another_tag_is_no_stack_of_ours() -> None:
    for tag in ("", "ray-train-platform", "ray-train-platform/", "ray-train-platform/../prod", "x/dev"):
        assert StackName.of_tag(tag, account="111122223333") is None, tag
