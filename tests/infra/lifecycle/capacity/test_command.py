"""The command: what it prints, and what it refuses before it asks AWS."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore import xform_name
from botocore.model import StringShape
from botocore.validate import ParamValidator

from infra.lifecycle.cli import main
from infra.spec.settings import from_mapping
from infra.spec.settings.loading import ENVIRONMENTS
from infra.spec.yaml_text import parse, read_file
from tests.infra.lifecycle.capacity.published import Published, Refused, published
from tests.infra.lifecycle.capacity.samples import BLOCK_ID, HOUR, NOW, answers, described

PROD = ("capacity", "--env", "prod")
FIND = (*PROD, "--group", "h100", "--for", "8")


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Published]:
    """AWS with the sample's answers, on a machine without Pulumi."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("RTP_STACK_OUTPUTS", raising=False)
    with published(monkeypatch, answers()) as found:
        yield found


def printed(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert main(words) == status
    captured = capsys.readouterr()
    return captured.err if status else captured.out


def test_the_block_for_sale_is_first_with_its_purchase_and_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, *PROD, "--group", "h100", "--for", "9")
    assert "9 x p5.48xlarge (72 H100) for 24 h" in out
    assert "1,728 GPU hours, for group h100 of prod" in out
    assert "group h100 has max_size: 8; the changes below raise it to 9" in out
    first = next(line for line in out.splitlines() if " 1 " in line)
    assert "block for sale" in first
    assert "12,288" in first
    buy = "aws ec2 purchase-capacity-block --region us-east-1 --capacity-block-offering-id cbr-0123456789abcdef0"
    assert buy in out
    capacity = "capacity: {kind: capacity_block, id: cr-…, availability_zone: us-east-1b, ends: 2030-01-04T11:30:00Z}"
    assert capacity in out.replace("'", "")
    assert "future reservation, us-east-1: EC2 takes requests for C, M, R, I, T and G types only" in out
    enough = printed(capsys, *FIND)
    assert "group h100 takes it as it is" in enough
    assert "the changes below raise it" not in enough


def test_the_settings_accept_every_change_in_the_document(aws: Published, capsys: pytest.CaptureFixture[str]) -> None:
    unfit = described(CapacityReservationId="cr-0000000000000000e", Tenancy="dedicated")
    aws.answers["DescribeCapacityReservations"] = {"CapacityReservations": [described(), unfit]}
    found = json.loads(printed(capsys, *FIND, "--json"))
    (dedicated,) = [one for one in found["offers"] if one["id"] == unfit["CapacityReservationId"]]
    assert dedicated["settings"] is None
    assert "it is of dedicated tenancy, nodes are not" in dedicated["shortfalls"]
    kinds = [one["kind"] for one in found["offers"]]
    assert kinds[:2] == ["reservation", "block_offering"]
    assert {"on_demand", "spot"} <= set(kinds)
    changes = [one["settings"]["group_yaml"] for one in found["offers"] if one["settings"]]
    assert sum(1 for one in changes if one) >= 3
    for text in filter(None, changes):
        (group,) = parse(text.replace("cr-…", BLOCK_ID), source="printed").value
        tree = read_file(ENVIRONMENTS / "prod.yaml").value
        tree["gpu_groups"] = [group if one["name"] == "h100" else one for one in tree["gpu_groups"]]
        from_mapping(tree, file="pasted")


def test_the_printed_commands_are_requests_that_ec2_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """The AWS CLI makes its commands of the same models as boto3."""
    plain = ("--env", "prod", "--group", "l4", "--for", "8", "--json")
    found = [json.loads(printed(capsys, *FIND, "--json")), json.loads(printed(capsys, "capacity", *plain))]
    commands = {one["command"] for document in found for one in document["offers"] if one["command"]}
    service = boto3.client("ec2", region_name="us-east-1").meta.service_model
    operations = {xform_name(name, "-"): service.operation_model(name) for name in service.operation_names}
    seen = set()
    for command in commands:
        program, service_name, operation, *words = shlex.split(command)
        assert (program, service_name) == ("aws", "ec2")
        shape = operations[operation].input_shape
        members = {xform_name(name, "-"): (name, member) for name, member in shape.members.items()}
        given: dict[str, object] = {}
        for option, value in zip(words[::2], words[1::2], strict=True):
            if option == "--region":
                continue
            name, member = members[option.removeprefix("--")]
            given[name] = int(value) if member.type_name in {"integer", "long"} else value
            assert not isinstance(member, StringShape) or not member.enum or value in member.enum
        assert not ParamValidator().validate(given, shape).has_errors()
        seen.add((operation, "--start-date" in words))
    assert seen == {
        ("purchase-capacity-block", False),
        ("create-capacity-reservation", False),
        ("create-capacity-reservation", True),
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([*PROD, "--for", "8"], "prod has several GPU groups"),
        ([*PROD, "--group", "h100"], "--group: without --for nothing is looked for"),
        ([*FIND, "--from", "2020-01-01"], "has passed"),
        ([*FIND, "--region", "us-east-9"], "unknown region"),
        ([*FIND, "--out", "x.svg"], "--out draws the calendar"),
        ([*PROD, "--out", "x.doc"], "the format must be .svg, .html, .png or .pdf"),
        ([*PROD, "--outputs", "none.json"], "none.json"),
        (["capacity", "--env", "prd"], "unknown environment 'prd' (did you mean prod?)"),
    ],
)
def test_input_that_is_refused(aws: Published, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert said in printed(capsys, *words, status=2)
    assert aws.requests == []


def test_credentials_of_another_account_are_refused(aws: Published, capsys: pytest.CaptureFixture[str]) -> None:
    aws.answers["GetCallerIdentity"] = {"Account": "111122223333", "Arn": "arn:aws:sts::111122223333:assumed-role/x/y"}
    assert "AWS account 111122223333 may not hold environment prod" in printed(capsys, *FIND, status=3)
    assert [name for name, _, _ in aws.requests] == ["GetCallerIdentity"]


def test_without_nodes_it_is_the_calendar(aws: Published, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "prod has no reservation and no Capacity Block" in printed(capsys, *PROD)
    block = {"ReservationType": "capacity-block", "EndDateType": "limited", "EndDate": NOW + 9000 * HOUR}
    aws.answers["DescribeCapacityReservations"] = {"CapacityReservations": [described(**block)]}
    file = tmp_path / "calendar.svg"
    out = printed(capsys, *PROD, "--out", str(file))
    assert "Capacity Block, p5.48xlarge" in out
    assert "is used by no group of the environment" in out
    assert "jobs: not known: no `pulumi` on PATH" in out
    assert file.read_text(encoding="utf-8").startswith("<?xml")
    (window,) = json.loads(printed(capsys, *PROD, "--json"))["windows"]
    assert (window["kind"], window["group"], window["nodes"]) == ("capacity_block", None, 8)
    aws.answers["DescribeCapacityReservations"] = Refused("UnauthorizedOperation")
    said = printed(capsys, *PROD, status=3)
    assert "not known: access denied, needs ec2:DescribeCapacityReservations" in said
