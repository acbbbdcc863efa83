"""The graph of every environment, against the recorded one and against the stores of the last release."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from infra.policy import tokens
from infra.policy.rules.protection import STATEFUL_TYPES
from infra.preview.recording import Recording, Resource
from infra.spec.release import load_release
from tests.infra.aws.graphs import ENVIRONMENTS, graph
from tests.infra.preview import snapshot
from tests.infra.preview.snapshot import (
    REPLACING,
    STATE,
    differences,
    losses,
    read_released,
    read_snapshot,
    rendered,
    snapshot_of,
    stores_of,
)

PROD = graph("prod")
BEFORE = snapshot_of(PROD)
DATABASE = PROD.find(tokens.DATABASE, "mlflow")
BUCKET = PROD.find(tokens.BUCKET, "checkpoints")
SHIPPED = set(STATE) - {tokens.LUSTRE}
"""Stores of every shipped environment; the others exist by setting."""
VPC = PROD.find("aws:ec2/vpc:Vpc", "vpc")


def updated(old: Resource, *new: Resource) -> tuple[list[str], list[str]]:
    """Differences and losses where prod's graph has other resources in the place of one."""
    rest = tuple(one for one in PROD.resources if one != old)
    after = snapshot_of(Recording((*rest, *new), {}))
    return list(differences(BEFORE, after)), list(losses(BEFORE, after))


def renamed(resource: Resource, name: str, *aliases: str) -> Resource:
    return replace(resource, name=name, urn=f"{resource.urn.rpartition('::')[0]}::{name}", aliases=aliases)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_an_update_from_the_last_release_loses_no_state(environment: str) -> None:
    released = read_released(environment)
    assert {name.partition("::")[0].rpartition("$")[2] for name in released} == SHIPPED
    assert list(losses(released, snapshot_of(graph(environment)))) == []


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_graph_is_the_recorded_one(environment: str) -> None:
    before, after = read_snapshot(environment), snapshot_of(graph(environment))
    assert list(losses(before, after)) == []
    assert list(differences(before, after)) == [], f"if this is meant: {snapshot.__doc__}"


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_file_is_the_one_that_the_command_writes(environment: str) -> None:
    text = (snapshot.GRAPHS / f"{environment}.json").read_text(encoding="utf-8")
    assert text == rendered(read_snapshot(environment))


def test_every_type_that_the_policy_protects_is_watched() -> None:
    assert {*STATEFUL_TYPES, tokens.CLUSTER} == set(STATE) == set(REPLACING)


def test_a_changed_input_is_named_with_both_values() -> None:
    [line], lost = updated(VPC, replace(VPC, properties={**VPC.properties, "cidrBlock": "10.9.0.0/16"}))
    assert line.endswith('::vpc: inputs.cidrBlock was "10.48.0.0/16", is "10.9.0.0/16"')
    assert lost == []


def test_a_changed_option_is_named() -> None:
    [line], lost = updated(BUCKET, replace(BUCKET, protect=False))
    assert line.endswith("::checkpoints: protect was true, is absent")
    assert lost == []


def test_a_long_value_that_changes_shows_as_another_digest() -> None:
    policy = PROD.find(tokens.BUCKET_POLICY, "checkpoints")
    [line], _ = updated(policy, replace(policy, properties={**policy.properties, "policy": "x" * 99}))
    assert "inputs.policy was " in line
    assert "sha256:" in line


def test_resources_that_come_and_go_are_named() -> None:
    lines, lost = updated(VPC, renamed(VPC, "network"))
    assert [line.rpartition("::")[2] for line in lines] == ["network: is new", "vpc: is gone"]
    assert lost == []


@pytest.mark.parametrize("type_", sorted(SHIPPED))
def test_a_store_that_is_gone_is_a_loss_of_what_it_holds(type_: str) -> None:
    store = PROD.of_type(type_)[0]
    [line] = updated(store)[1]
    assert f"::{store.name}: is gone" in line
    assert f"the stack would lose {STATE[type_]}" in line


def test_a_store_that_is_renamed_without_an_alias_is_a_loss() -> None:
    [line] = updated(BUCKET, renamed(BUCKET, "saves"))[1]
    assert "::checkpoints: is gone, and no resource has its URN as an alias" in line


@pytest.mark.parametrize("alias", [BUCKET.urn, "name=checkpoints", f"name=checkpoints,type={BUCKET.type}"])
def test_a_store_that_is_renamed_with_an_alias_keeps_its_state(alias: str) -> None:
    assert updated(BUCKET, renamed(BUCKET, "saves", alias))[1] == []


def test_an_alias_of_another_resource_saves_nothing() -> None:
    assert len(updated(BUCKET, renamed(BUCKET, "saves", "name=others"))[1]) == 1


def test_a_store_moves_with_a_component_that_has_an_alias() -> None:
    parent = next(one for one in PROD.resources if one.urn == BUCKET.parent)
    moved = replace(parent, urn=parent.urn.replace("rtp:aws:Bucket", "rtp:aws:Store"), aliases=("type=rtp:aws:Bucket",))
    child = replace(BUCKET, urn=BUCKET.urn.replace("rtp:aws:Bucket", "rtp:aws:Store"), parent=moved.urn)
    assert updated(BUCKET, child, moved)[1] == []
    assert len(updated(BUCKET, child, replace(moved, aliases=()))[1]) == 1


@pytest.mark.parametrize("key", REPLACING[tokens.DATABASE])
def test_an_input_that_replaces_the_database_is_a_loss(key: str) -> None:
    [line] = updated(DATABASE, replace(DATABASE, properties={**DATABASE.properties, key: "other"}))[1]
    assert f"{key} was " in line
    assert 'is "other", which replaces the resource; the stack would lose every experiment and run' in line


def test_an_input_inside_another_one_that_replaces_the_cluster_is_a_loss() -> None:
    cluster = PROD.find(tokens.CLUSTER, "cluster")
    network = {**cluster.properties["kubernetesNetworkConfig"], "serviceIpv4Cidr": "10.100.0.0/16"}
    changed = replace(cluster, properties={**cluster.properties, "kubernetesNetworkConfig": network})
    [line] = updated(cluster, changed)[1]
    assert 'kubernetesNetworkConfig.serviceIpv4Cidr was "172.20.0.0/16", is "10.100.0.0/16"' in line


def test_an_input_that_is_updated_in_place_is_no_loss() -> None:
    larger = replace(DATABASE, properties={**DATABASE.properties, "allocatedStorage": 200})
    assert updated(DATABASE, larger)[1] == []
    assert len(updated(DATABASE, replace(larger, replace_on_changes=("allocatedStorage",)))[1]) == 1


def test_a_new_version_of_the_platform_changes_only_what_holds_more_than_it(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = PROD.find("kubernetes:core/v1:Namespace", "namespace-research")
    metadata = namespace.properties["metadata"]
    labels = {**metadata["labels"], "app.kubernetes.io/version": "9.9.9"}
    later = replace(namespace, properties={**namespace.properties, "metadata": {**metadata, "labels": labels}})
    before = snapshot_of(Recording((namespace,), {}))
    newer = load_release().model_copy(update={"platform": "9.9.9"})
    monkeypatch.setattr(snapshot, "load_release", lambda: newer)
    assert snapshot_of(Recording((later,), {})) == before


def test_no_secret_is_written() -> None:
    spoiled = replace(DATABASE, properties={"a": {"password": "hunter2"}}, secrets=frozenset({"a.password"}))
    assert "hunter2" not in rendered(snapshot_of(Recording((spoiled,), {})))


def test_the_command_refuses_to_write_a_loss_unless_it_is_accepted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dict(read_snapshot("prod"))
    before["aws:s3/bucket:Bucket::old"] = {"inputs.bucket": "old"}
    monkeypatch.setattr(snapshot, "GRAPHS", tmp_path)
    (tmp_path / "prod.json").write_text(rendered(before), encoding="utf-8")
    assert snapshot.main([]) == 3
    assert "aws:s3/bucket:Bucket::old: is gone" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["prod.json"]
    assert snapshot.main(["--accept-loss"]) == 0
    assert (tmp_path / "prod.json").read_text(encoding="utf-8") == rendered(read_snapshot("prod"))


def test_only_a_release_writes_the_stores_that_later_graphs_are_compared_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(snapshot, "GRAPHS", tmp_path)
    assert snapshot.main([]) == 0
    assert not (tmp_path / snapshot.RELEASED).exists()
    assert snapshot.main(["--release"]) == 0
    assert read_released("prod") == stores_of(read_snapshot("prod"))
