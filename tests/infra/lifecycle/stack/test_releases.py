"""Helm's records and a stack's state agree again after an update was killed anywhere between the two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.lifecycle.commands.recovery import _await_deleted, _delete_lost
from infra.lifecycle.stack.releases import apply_repair, find_repairs
from infra.lifecycle.stack.state import Interrupted
from infra.spec.errors import RefusedError
from infra.spec.manifest import MANAGED_BY, PART_OF, Manifest, api_object
from tests.engines.kubernetes import Cluster

NAMESPACE = "records"
PROJECT = "urn:pulumi:dev::p::"
CHARTS = f"{PROJECT}rtp:kubernetes:Charts::charts"
PROVIDER = f"{PROJECT}pulumi:providers:kubernetes::kubernetes"
URN = f"{PROJECT}rtp:kubernetes:Charts$kubernetes:helm.sh/v3:Release::kueue"


def record(status: str, version: int, name: str = "kueue", namespace: str = NAMESPACE) -> Manifest:
    """Helm's Secret of one revision."""
    labels = {"owner": "helm", "name": name, "status": status, "version": str(version)}
    metadata = {"name": f"sh.helm.release.v1.{name}.v{version}", "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1", "metadata": metadata}


def state(*, has_release: bool) -> dict[str, Any]:
    ours = {"urn": URN, "type": "kubernetes:helm.sh/v3:Release", "inputs": {"namespace": NAMESPACE, "name": "kueue"}}
    others = [
        {"urn": CHARTS, "type": "rtp:kubernetes:Charts"},
        {"urn": PROVIDER, "type": "pulumi:providers:kubernetes"},
    ]
    return {"deployment": {"resources": [*others, ours] if has_release else others}}


@pytest.fixture(scope="module")
def cluster(kubernetes_api: Cluster) -> Iterator[Cluster]:
    with kubernetes_api.namespace(NAMESPACE), kubernetes_api.namespace("elsewhere"):
        yield kubernetes_api


@pytest.fixture
def pulumi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts a `pulumi` on PATH that notes its arguments in this file, one command a line."""
    notes, program = tmp_path / "ran", tmp_path / "pulumi"
    program.write_text(f'#!/bin/sh\necho "$*" >> {notes}\n')
    program.chmod(0o755)
    notes.touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return notes


def test_objects_that_a_killed_installation_made_and_the_state_lacks_go_before_a_destroy(cluster: Cluster) -> None:
    """A destroy knows only what the state has, and the cluster may stay."""
    ours, known, theirs = (
        api_object("v1", "ConfigMap", name, namespace=NAMESPACE, labels={PART_OF: whose})
        for name, whose in (("ours", MANAGED_BY), ("known", MANAGED_BY), ("theirs", "others"))
    )
    made = [
        Interrupted("creating", f"urn:{one['metadata']['name']}", "kubernetes:core/v1:ConfigMap", "", "", one)
        for one in (ours, known, theirs)
    ]
    with cluster.applied(ours, known, theirs):
        _delete_lost(cluster, {"deployment": {"resources": [{"urn": "urn:known"}]}}, made)
        assert [cluster.read(one) is not None for one in (ours, known, theirs)] == [False, True, True]


def test_an_update_waits_for_what_a_killed_command_deletes(cluster: Cluster) -> None:
    kept = api_object("v1", "ConfigMap", "kept", namespace=NAMESPACE)
    deleting = [Interrupted("deleting", "urn:kept", "kubernetes:core/v1:ConfigMap", "", "", kept)]
    cluster.create({**kept, "metadata": {**kept["metadata"], "finalizers": ["example.com/kept"]}})
    _await_deleted(cluster, deleting, seconds=0)
    cluster.delete(kept)
    try:
        with pytest.raises(RefusedError, match=f"ConfigMap {NAMESPACE}/kept: finalizers example.com/kept"):
            _await_deleted(cluster, deleting, seconds=0)
    finally:
        cluster.patch(kept, {"metadata": {"finalizers": None}})
    _await_deleted(cluster, deleting, seconds=0)


IMPORT = f"import kubernetes:helm.sh/v3:Release kueue {NAMESPACE}/kueue --parent parent={CHARTS} --provider provider={PROVIDER}"


@pytest.mark.parametrize(
    ("has_release", "statuses", "left", "command", "is_teardown"),
    [
        pytest.param(False, ["pending-install"], [], "", False, id="killed in an installation"),
        pytest.param(False, ["failed"], [], "", False, id="killed while a failed installation was removed"),
        pytest.param(False, ["uninstalling"], [], "", False, id="killed in a removal that the state does not know"),
        pytest.param(
            False, ["deployed"], ["deployed"], IMPORT, False, id="installed, and killed before the state was written"
        ),
        pytest.param(
            False, ["deployed", "pending-upgrade"], ["deployed"], IMPORT, False, id="and killed in an upgrade later"
        ),
        pytest.param(True, ["deployed", "pending-upgrade"], ["deployed"], "", False, id="killed in an upgrade"),
        pytest.param(
            True, ["superseded", "pending-rollback"], ["superseded"], "", False, id="killed while it was rolled back"
        ),
        pytest.param(True, ["uninstalling"], [], f"refresh --target {URN}", False, id="killed in a removal"),
        pytest.param(
            True, [], [], f"refresh --target {URN}", False, id="removed, and killed before the state was written"
        ),
        pytest.param(
            False, ["pending-install"], ["pending-install"], IMPORT, True, id="removed after a killed installation"
        ),
        pytest.param(True, ["superseded", "deployed"], ["superseded", "deployed"], "", False, id="nothing was killed"),
    ],
)
def test_records_and_state_agree_again(
    cluster: Cluster,
    pulumi: Path,
    statuses: list[str],
    left: list[str],
    command: str,
    *,
    is_teardown: bool,
    has_release: bool,
) -> None:
    records = [record(status, number) for number, status in enumerate(statuses, 1)]
    others = [record("pending-install", 1, name="other"), record("pending-install", 1, namespace="elsewhere")]
    wanted = [(NAMESPACE, "kueue"), (NAMESPACE, "kuberay-operator")]
    with cluster.applied(*records, *others):
        exported = state(has_release=has_release)
        for repair in find_repairs(cluster, exported, wanted, is_teardown=is_teardown):
            apply_repair(cluster, exported, repair, environment="dev")
        found = cluster.items("v1", "Secret", namespace=NAMESPACE, labels="owner=helm,name=kueue")
        assert [one["metadata"]["labels"]["status"] for one in found] == left, "by name, so by revision"
        assert all(cluster.read(one) is not None for one in others), "somebody else's"
    assert pulumi.read_text().startswith(command)
    assert bool(pulumi.read_text()) == bool(command)
