"""The graph of every environment against the recorded one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from infra.aws import program
from infra.lifecycle.upgrade.steps import PROTECTED
from infra.policy import tokens
from infra.policy.rules.protection import STATEFUL_TYPES
from infra.preview.recording import Recording, Resource, record
from infra.spec.release import load_release
from tests.infra.aws.graphs import ENVIRONMENTS, graph, settings_of
from tests.infra.preview import snapshot
from tests.infra.preview.snapshot import (
    REPLACING,
    STATE,
    Snapshot,
    differences,
    losses,
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
VPC = PROD.find(tokens.VPC, "vpc")
GROUP = PROD.find(tokens.NODE_GROUP, "h100")


def updated(old: Resource, *new: Resource) -> tuple[list[str], list[str]]:
    """Differences and losses where prod's graph has other resources in the place of one."""
    rest = tuple(one for one in PROD.resources if one != old)
    after = snapshot_of(Recording((*rest, *new), {}))
    return list(differences(BEFORE, after)), list(losses(BEFORE, after))


def renamed(resource: Resource, name: str, *aliases: str) -> Resource:
    return replace(resource, name=name, urn=f"{resource.urn.rpartition('::')[0]}::{name}", aliases=aliases)


def _with_node_image(monkeypatch: pytest.MonkeyPatch, version: str) -> Snapshot:
    """Prod's graph, for a release that pins this version of the node images."""
    release = load_release()
    image = release.node_image.model_copy(update={"releases": dict.fromkeys(release.node_image.releases, version)})
    pinned = release.model_copy(update={"node_image": image})
    monkeypatch.setattr(program, "load_release", lambda: pinned)
    return snapshot_of(record(settings_of("prod")))


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_graph_is_the_recorded_one_as_the_command_writes_it(environment: str) -> None:
    before, after = read_snapshot(environment), snapshot_of(graph(environment))
    assert list(losses(before, after)) == []
    assert list(differences(before, after)) == [], f"if this is meant: {snapshot.__doc__}"
    assert (snapshot.GRAPHS / f"{environment}.json").read_text(encoding="utf-8") == rendered(before)


def test_every_type_that_the_policy_or_an_upgrade_protects_is_watched() -> None:
    assert {*STATEFUL_TYPES, tokens.CLUSTER, tokens.VPC, tokens.SUBNET} == PROTECTED == set(STATE) == set(REPLACING)


def test_a_changed_input_or_option_is_named_with_both_values_or_their_digests() -> None:
    [line], lost = updated(GROUP, replace(GROUP, properties={**GROUP.properties, "capacityType": "SPOT"}))
    assert line.endswith('::h100: inputs.capacityType was "ON_DEMAND", is "SPOT"')
    assert lost == []

    [line], lost = updated(BUCKET, replace(BUCKET, protect=False))
    assert line.endswith("::checkpoints: protect was true, is absent")
    assert lost == []
    policy = PROD.find(tokens.BUCKET_POLICY, "checkpoints")
    [line], _ = updated(policy, replace(policy, properties={**policy.properties, "policy": "x" * 99}))
    assert "inputs.policy was " in line
    assert "sha256:" in line


def test_resources_that_come_and_go_are_named() -> None:
    lines, lost = updated(GROUP, renamed(GROUP, "h200"))
    assert [line.rpartition("::")[2] for line in lines] == ["h100: is gone", "h200: is new"]
    assert lost == []


def test_a_store_that_is_gone_is_a_loss_of_what_it_holds() -> None:
    for type_ in SHIPPED:
        store = PROD.of_type(type_)[0]
        [line] = updated(store)[1]
        assert f"::{store.name}: is gone" in line
        assert f"the stack would lose {STATE[type_]}" in line


def test_a_store_that_is_renamed_keeps_its_state_only_with_an_alias_of_its_own() -> None:
    for alias in (BUCKET.urn, "name=checkpoints", f"name=checkpoints,type={BUCKET.type}"):
        assert updated(BUCKET, renamed(BUCKET, "saves", alias))[1] == [], alias
    for others in ((), ("name=others",)):
        [line] = updated(BUCKET, renamed(BUCKET, "saves", *others))[1]
        assert "::checkpoints: is gone, and no resource has its URN as an alias" in line


def test_a_renamed_component_without_an_alias_loses_all_that_is_in_it() -> None:
    """As when a class gets another type token: every child has another URN then."""
    old, new = "rtp:aws:Network", "rtp:aws:Networking"
    after = {name.replace(old, new): described for name, described in BEFORE.items()}
    lost = {line.partition(": is gone")[0] for line in losses(BEFORE, after)}
    assert lost == {name for name in stores_of(BEFORE) if name.startswith(old)} != set()


def test_another_address_range_is_a_loss_of_the_network() -> None:
    [line] = updated(VPC, replace(VPC, properties={**VPC.properties, "cidrBlock": "10.9.0.0/16"}))[1]
    assert 'cidrBlock was "10.48.0.0/16", is "10.9.0.0/16", which replaces the resource' in line
    assert "the stack would lose the network with everything in it" in line


def test_a_moved_pin_of_the_node_image_is_named_at_every_group_that_it_rolls(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned, moved = (_with_node_image(monkeypatch, version) for version in ("1.35.4-20261101", "1.35.4-20261120"))
    lines = list(differences(pinned, moved))
    assert {line.partition(": ")[0] for line in lines} == {
        name for name in pinned if tokens.NODE_GROUP in name.partition("::")[0]
    }
    assert all('inputs.releaseVersion was "1.35.4-20261101", is "1.35.4-20261120"' in line for line in lines)
    assert list(losses(pinned, moved)) == []


def test_a_store_moves_with_a_component_that_has_an_alias() -> None:
    parent = next(one for one in PROD.resources if one.urn == BUCKET.parent)
    moved = replace(parent, urn=parent.urn.replace("rtp:aws:Bucket", "rtp:aws:Store"), aliases=("type=rtp:aws:Bucket",))
    child = replace(BUCKET, urn=BUCKET.urn.replace("rtp:aws:Bucket", "rtp:aws:Store"), parent=moved.urn)
    assert updated(BUCKET, child, moved)[1] == []
    assert len(updated(BUCKET, child, replace(moved, aliases=()))[1]) == 1


def test_an_input_that_replaces_a_store_is_a_loss_also_inside_another_one() -> None:
    for key in REPLACING[tokens.DATABASE]:
        [line] = updated(DATABASE, replace(DATABASE, properties={**DATABASE.properties, key: "other"}))[1]
        assert f"{key} was " in line
        assert 'is "other", which replaces the resource; the stack would lose every experiment and run' in line
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
