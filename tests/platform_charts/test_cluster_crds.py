"""CRD upgrades with existing objects."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from infra.kube.definitions import apply_crds
from infra.kube.errors import ApiError
from infra.spec.manifest import Manifest
from platform_charts.charts.crds import check_crd_upgrades
from tests.engines.kubernetes import Cluster, crds
from tests.engines.kubernetes_jobs import raycluster
from tests.engines.kubernetes_platform import Environment, in_dev

pytestmark = pytest.mark.extended

NAME = "rayclusters.ray.io"
_EMPTY = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "probe", "namespace": "default"}}


@pytest.fixture
def older(custom_resources: Cluster) -> Iterator[Manifest]:
    """The RayCluster CRD of an older release, without one field; the pinned CRD is restored afterwards."""
    crd = copy.deepcopy(_pinned())
    (stored,) = [version for version in crd["spec"]["versions"] if version["storage"]]
    del stored["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["authOptions"]
    try:
        apply_crds(custom_resources, [crd])
        # The API server applies a new schema after a short delay.
        probe = {**_EMPTY, "spec": {"authOptions": {"mode": "token"}}}
        custom_resources.await_(crd, lambda _: "authOptions" in _refusal(custom_resources, probe), what="old")
        yield crd
    finally:
        apply_crds(custom_resources, [_pinned()])


@in_dev
def test_objects_survive_the_upgrade_of_their_crd_after_which_a_new_field_is_accepted(
    environment: Environment, older: Manifest
) -> None:
    cluster, manifest, newer = environment.cluster, raycluster(environment, "kept"), raycluster(environment, "newer")
    del manifest["spec"]["authOptions"]
    assert "authOptions" in _refusal(cluster, newer)
    with cluster.applied(manifest) as (before,):
        live = cluster.read(older)
        assert live is not None
        check_crd_upgrades([live], crds("kuberay"))
        apply_crds(cluster, crds("kuberay"))
        cluster.await_(older, lambda _: _refusal(cluster, newer) == "", what="upgraded")
        after = cluster.read(manifest)
        assert after is not None
        assert (after["metadata"]["uid"], after["spec"]) == (before["metadata"]["uid"], before["spec"])


def _pinned() -> Manifest:
    (found,) = [one for one in crds("kuberay") if one["metadata"]["name"] == NAME]
    return found


def _refusal(cluster: Cluster, manifest: Manifest) -> str:
    """Why the API server would refuse the object; empty if it accepts it."""
    try:
        cluster.apply(manifest, is_dry_run=True)
    except ApiError as refusal:
        return str(refusal)
    return ""
