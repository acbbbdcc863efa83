"""The objects that the charts render, on a real API server; needs Helm and the archives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.kube.errors import ApiError
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.spec.manifest import Manifest
from infra.spec.release import load_release
from platform_charts.charts.crds import CRD_GROUPS, PinnedCharts
from tests.engines.helm import find_pinned_archive
from tests.engines.kubernetes import Cluster
from tests.engines.kubernetes_platform import Environment, in_prod
from tests.platform_charts.charts.releases import installs_of
from tests.platform_charts.charts.rendering import rendered

pytestmark = [pytest.mark.extended, in_prod]
"""The environment that installs every chart."""

_OPERATED = ("prometheuses.", "alertmanagers.")
"""CRDs of rendered objects that `make engines` does not copy, by the start of their names."""


@pytest.fixture(scope="module")
def helm(control_plane: ControlPlane, environment: Environment) -> Iterator[Cluster]:
    """The API server as Helm sees it: with the platform's namespaces and the CRDs of the charts."""
    archive = find_pinned_archive("kube-prometheus-stack")
    pinned = PinnedCharts(load_release(), folder=archive.parent).crds(CRD_GROUPS["kube-prometheus-stack"])
    missing = [crd for crd in pinned if crd["metadata"]["name"].startswith(_OPERATED)]
    with environment.cluster.applied(*missing):
        for crd in missing:
            environment.cluster.await_(crd, _is_established, what="established")
        # A client of its own discovers the new kinds, and keeps the charts' warnings from those of our objects.
        yield Cluster(control_plane)


def _is_established(crd: Manifest) -> bool:
    conditions = crd.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def in_namespace(manifest: Manifest, namespace: str) -> Manifest:
    """The object in the namespace in which Helm creates it."""
    return {**manifest, "metadata": {"namespace": namespace, **manifest["metadata"]}}


def test_the_api_server_accepts_every_object_of_every_chart(helm: Cluster, environment: Environment) -> None:
    refused = []
    for name, install in installs_of(environment.settings).items():
        for manifest in rendered(name, "prod"):
            try:
                helm.apply(in_namespace(manifest, install.namespace), manager="helm", is_dry_run=True)
            except ApiError as error:
                refused.append(f"{name}: {manifest['kind']} {manifest['metadata']['name']}: {error}")
    assert refused == []
