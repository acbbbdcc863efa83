"""Upgrades of custom resource definitions under objects that are there."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from infra.kube.errors import ApiError
from infra.lifecycle.sandbox.definitions import define
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest
from platform_charts.charts.crds import check_upgrade, check_upgrades
from tests.engines.kubernetes import Cluster, crds
from tests.engines.kubernetes_jobs import raycluster
from tests.engines.kubernetes_platform import Environment, in_dev

NAME = "rayclusters.ray.io"
_EMPTY = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "probe", "namespace": "default"}}


@pytest.fixture
def older(custom_resources: Cluster) -> Iterator[Manifest]:
    """The definition of RayClusters as an older release had it: without one field. The pinned one comes back."""
    definition = copy.deepcopy(_pinned())
    (stored,) = [version for version in definition["spec"]["versions"] if version["storage"]]
    del stored["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["authOptions"]
    try:
        define(custom_resources, [definition])
        # The API server takes a new schema up within moments, not at once.
        probe = {**_EMPTY, "spec": {"authOptions": {"mode": "token"}}}
        custom_resources.await_(definition, lambda _: "authOptions" in _complaint(custom_resources, probe), what="old")
        yield definition
    finally:
        define(custom_resources, [_pinned()])


@in_dev
def test_objects_of_an_older_definition_outlive_its_upgrade(environment: Environment, older: Manifest) -> None:
    cluster, manifest = environment.cluster, raycluster(environment, "kept", max_workers=2)
    del manifest["spec"]["authOptions"]
    with cluster.applied(manifest) as (before,):
        live = cluster.read(older)
        assert live is not None
        check_upgrades([live], crds("kuberay"))
        define(cluster, crds("kuberay"))
        after = cluster.read(manifest)
        assert after is not None
        assert (after["metadata"]["uid"], after["spec"]) == (before["metadata"]["uid"], before["spec"])


@in_dev
def test_a_field_of_the_newer_definition_is_taken_once_it_is_there(environment: Environment, older: Manifest) -> None:
    cluster, manifest = environment.cluster, raycluster(environment, "newer", max_workers=2)
    assert "authOptions" in _complaint(cluster, manifest)
    define(cluster, [_pinned()])
    cluster.await_(older, lambda _: _complaint(cluster, manifest) == "", what="in force")


def test_a_definition_without_a_version_that_the_cluster_serves_is_refused(custom_resources: Cluster) -> None:
    live = custom_resources.read(_pinned())
    assert live is not None
    narrower = copy.deepcopy(_pinned())
    narrower["spec"]["versions"] = [one for one in narrower["spec"]["versions"] if one["name"] == "v1"]
    with pytest.raises(RefusedError, match="version v1alpha1 is served, and would not be any more"):
        check_upgrade(live, narrower)


def test_the_pinned_definitions_may_replace_themselves(custom_resources: Cluster) -> None:
    live = [custom_resources.read(definition) for definition in crds("kuberay")]
    check_upgrades([one for one in live if one is not None], crds("kuberay"))
    assert len(live) == len(crds("kuberay"))


def _pinned() -> Manifest:
    (found,) = [one for one in crds("kuberay") if one["metadata"]["name"] == NAME]
    return found


def _complaint(cluster: Cluster, manifest: Manifest) -> str:
    """Why the API server would refuse the object; nothing where it would not."""
    try:
        cluster.apply(manifest, is_dry_run=True)
    except ApiError as refusal:
        return str(refusal)
    return ""
