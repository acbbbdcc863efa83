"""The graph of an environment as table, JSON and picture."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from infra.lifecycle.cli import main
from infra.preview.graph import document, picture, table
from infra.preview.graph.architecture import Architecture, Group, architecture_of
from infra.preview.recording import UNKNOWN, Recording
from infra.spec.catalog import load_catalog
from tests.infra.aws.graphs import ENVIRONMENTS, graph, settings_of, unusual, varied


def printed(recording: Recording) -> list[list[str]]:
    shown = table.resource_table(recording)
    return [list(cells) for cells in zip(*(column.cells for column in shown.columns), strict=True)]


def architecture(environment: str) -> Architecture:
    return architecture_of(settings_of(environment), graph(environment), load_catalog())


def test_the_table_has_a_row_for_every_resource_and_fits_in_eighty_columns() -> None:
    for environment in ENVIRONMENTS:
        recording = graph(environment)
        rows = printed(recording)
        names = sorted(one.name for one in recording.resources if not one.is_component)
        assert sorted(name for _, _, name, _ in rows) == names, environment
        components = len(recording.resources) - len(names)
        assert table.resource_table(recording).caption == f"{len(names)} resources in {components} components"
        screen = io.StringIO()
        Console(width=80, file=screen).print(table.resource_table(recording))
        assert max(map(len, screen.getvalue().splitlines())) <= 80, environment


def test_a_row_shows_the_component_and_the_options_with_explicit_dependencies_only() -> None:
    rows = {(kind, name): (path, options) for path, kind, name, options in printed(graph("prod"))}
    assert rows["aws.rds.Instance", "mlflow"][1].startswith("protect; retain on delete")
    assert rows["aws.s3.Bucket", "checkpoints"] == ("storage/checkpoints", "protect; retain on delete")
    assert rows["aws.eks.NodeGroup", "h100"][1] == "ignore scalingConfig.desiredSize"
    cluster = graph("prod").find("aws:eks/cluster:Cluster", "cluster")
    assert "after LogGroup cluster, RolePolicy cluster, RolePolicyAttachment" in "; ".join(table.options_of(cluster))


def test_the_document_has_every_property_of_every_resource() -> None:
    recording = graph("prod")
    written = json.loads(document.render(recording))
    assert set(written["resources"]) == {one.urn for one in recording.resources}
    vpc = recording.find("aws:ec2/vpc:Vpc", "vpc")
    assert written["resources"][vpc.urn]["properties"]["cidrBlock"] == "10.48.0.0/16"
    assert written["outputs"]["cluster"]["name"] == "rtp-prod"


def test_the_document_hides_secrets_and_shows_unknown_values_as_null() -> None:
    recording = graph("dev")
    vpc = recording.find("aws:ec2/vpc:Vpc", "vpc")
    properties = {"a": {"password": "hunter2"}, "list": ["x", "hunter2"], "later": UNKNOWN}
    with_secrets = replace(vpc, properties=properties, secrets=frozenset({"a.password", "list.1"}))
    text = document.render(Recording((with_secrets,), {"token": "hunter2"}, frozenset({"token"})))
    assert "hunter2" not in text
    assert json.loads(text)["resources"][vpc.urn]["properties"]["later"] is None


def test_the_picture_shows_the_gateways_of_the_zones_and_what_is_protected() -> None:
    assert [zone.has_nat for zone in architecture("dev").zones] == [True, False, False]
    assert [zone.has_nat for zone in architecture("prod").zones] == [True, True, True]
    assert {store.is_protected for store in architecture("prod").stores} == {True}
    assert {store.is_protected for store in architecture("dev").stores} == {False}


def test_the_picture_shows_groups_in_their_zones_with_devices_and_placement() -> None:
    groups = {group.name: group for group in architecture("prod").groups}
    assert groups["h100"] == Group(
        name="h100",
        zones=(1,),
        instance="p5.48xlarge, 8 x H100",
        machines="0 to 8 nodes, on demand",
        fabric="EFA x 32, cluster placement group",
        has_gpus=True,
    )
    assert (groups["system"].zones, groups["system"].has_gpus) == ((0, 1, 2), False)
    assert groups["system"].machines == "3 to 6 nodes, on demand"
    assert (groups["l4"].zones, groups["l4"].machines) == ((0, 1, 2), "0 to 8 nodes, on demand")

    others = architecture_of(settings_of("dev"), unusual(), load_catalog()).groups
    block = next(one for one in others if one.name == "block")
    assert (block.instance, block.machines) == ("p5.48xlarge, 8 x H100", "0 to 2 nodes, capacity block")


def test_the_picture_shows_lustre_with_its_source_and_every_identity_with_its_service_accounts() -> None:
    (store,) = [one for one in architecture("lustre").stores if one.service == "FSx"]
    assert store.facts == "2400 GiB, PERSISTENT_2, one zone,\nshows s3://corpus/imagenet"
    workloads = {one.role: one.accounts for one in architecture("prod").workloads}
    assert workloads["trainer"] == ("production/trainer", "research/trainer")
    assert workloads["efs-csi"] == ("kube-system/efs-csi-controller-sa", "kube-system/efs-csi-node-sa")


def test_the_picture_of_an_existing_vpc_shows_the_zones_and_no_gateway() -> None:
    found = architecture("existing-vpc")
    assert found.vpc == "Existing VPC vpc-0a1b2c3d4e5f60718, 10.40.0.0/16, 100.64.0.0/16"
    assert [(zone.name, zone.private_cidr, zone.public_cidr, zone.has_nat) for zone in found.zones] == [
        ("us-east-1a", "100.64.0.0/18", "", False),
        ("us-east-1b", "100.64.64.0/18", "", False),
    ]
    assert all(zone.has_mount_target for zone in found.zones)
    assert {group.name: group.zones for group in found.groups} == {"system": (0, 1), "heads": (0, 1), "a10g": (0,)}


def test_the_picture_of_an_existing_cluster_names_it_and_the_add_ons_of_the_stack() -> None:
    found = architecture("existing-cluster")
    assert (found.cluster, found.addons) == ("shared", ("aws-efs-csi-driver", "eks-node-monitoring-agent"))
    assert "an existing cluster, which the stack does not change" in found.control_plane


@pytest.mark.extended
def test_an_svg_picture_is_deterministic_and_one_without_gpu_groups_is_drawn(tmp_path: Path) -> None:
    files = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for file in files:
        picture.draw(settings_of("dev"), graph("dev"), file)
    assert files[0].read_text() == files[1].read_text()
    file = tmp_path / "a.png"
    picture.draw(settings_of("dev"), varied({"gpu_groups": [], "teams": []}), file)
    assert file.stat().st_size > 10_000


def test_the_command_prints_the_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "prod.json"
    assert main(["graph", "--env", "prod", "--json", str(file)]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert any("aws.eks.NodeGroup" in line for line in lines)
    assert re.fullmatch(r"evaluated in \d+\.\d s of CPU time", last)
    assert json.loads(file.read_text())["outputs"]["environment"] == "prod"
