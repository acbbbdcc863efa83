"""The graph of every environment against the recorded one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.lifecycle.upgrade.steps import PROTECTED
from infra.policy import tokens
from infra.policy.rules.protection import STATEFUL_TYPES
from infra.preview.recording import Recording, Resource
from tests.infra.aws.graphs import ENVIRONMENTS, graph
from tests.infra.preview import snapshot
from tests.infra.preview.snapshot import REPLACING, STATE, differences, losses, read_snapshot, snapshot_of

PROD = graph("prod")
BEFORE = snapshot_of(PROD)
DATABASE = PROD.find(tokens.DATABASE, "mlflow")
BUCKET = PROD.find(tokens.BUCKET, "checkpoints")
SHIPPED = set(STATE) - {tokens.LUSTRE}
"""Stores of every shipped environment; the others exist by setting."""
CLUSTER = PROD.find(tokens.CLUSTER, "cluster")


def renamed(resource: Resource, name: str, *aliases: str) -> Resource:
    return replace(resource, name=name, urn=f"{resource.urn.rpartition('::')[0]}::{name}", aliases=aliases)


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_graph_is_the_recorded_one_as_the_command_writes_it(environment: str) -> None:
    before, after = read_snapshot(environment), snapshot_of(graph(environment))
    assert list(losses(before, after)) == []
    assert list(differences(before, after)) == [], f"if this is meant: {snapshot.__doc__}"
    assert (snapshot.GRAPHS / f"{environment}.json").read_text(encoding="utf-8") == snapshot.rendered(before)


def test_every_type_that_the_policy_or_an_upgrade_protects_is_watched() -> None:
    assert {*STATEFUL_TYPES, tokens.CLUSTER, tokens.VPC, tokens.SUBNET} == PROTECTED == set(STATE) == set(REPLACING)


def lost(old: Resource, *new: Resource) -> list[str]:
    """What prod's stack would lose with other resources in the place of one."""
    rest = tuple(one for one in PROD.resources if one != old)
    return list(losses(BEFORE, snapshot_of(Recording((*rest, *new), {}))))


def test_a_store_that_is_gone_renamed_or_replaced_is_a_loss_unless_it_has_an_alias() -> None:
    for type_ in SHIPPED:
        store = PROD.of_type(type_)[0]
        [line] = lost(store)
        assert f"::{store.name}: is gone" in line
        assert f"the stack would lose {STATE[type_]}" in line
    for alias in (BUCKET.urn, "name=checkpoints", f"name=checkpoints,type={BUCKET.type}"):
        assert lost(BUCKET, renamed(BUCKET, "saves", alias)) == [], alias
    assert len(lost(BUCKET, renamed(BUCKET, "saves", "name=others"))) == 1
    parent = next(one for one in PROD.resources if one.urn == BUCKET.parent)
    moved = replace(parent, urn=parent.urn.replace("rtp:aws:Bucket", "rtp:aws:Store"), aliases=("type=rtp:aws:Bucket",))
    child = replace(BUCKET, urn=BUCKET.urn.replace("rtp:aws:Bucket", "rtp:aws:Store"), parent=moved.urn)
    assert lost(BUCKET, child, moved) == []
    assert len(lost(BUCKET, child, replace(moved, aliases=()))) == 1
    for key, is_lost in {**dict.fromkeys(REPLACING[tokens.DATABASE], True), "allocatedStorage": False}.items():
        found = lost(DATABASE, replace(DATABASE, properties={**DATABASE.properties, key: "other"}))
        assert [f"{key} was " in line for line in found] == [True] * is_lost, key
    network = {**CLUSTER.properties["kubernetesNetworkConfig"], "serviceIpv4Cidr": "10.100.0.0/16"}
    [line] = lost(CLUSTER, replace(CLUSTER, properties={**CLUSTER.properties, "kubernetesNetworkConfig": network}))
    assert 'kubernetesNetworkConfig.serviceIpv4Cidr was "172.20.0.0/16", is "10.100.0.0/16"' in line
