"""What has load balancers and volumes in AWS is deleted while its controllers run: on a real control plane.

The controllers of EKS and AWS are doubles here, which only remove the finalizers that the real ones would.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Thread

import pytest

from infra.lifecycle.teardown.load_balancers import delete_exposed, find_exposed
from infra.lifecycle.teardown.namespaces import kept_namespaces
from infra.lifecycle.teardown.volumes import delete_claims, find_claims
from infra.lifecycle.teardown.workloads import delete_workloads, find_workloads
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest, api_object
from tests.engines.kubernetes import Cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.extended

LOAD_BALANCER = "service.kubernetes.io/load-balancer-cleanup"
RAY = "ray.io/gcs-ft-redis-cleanup-finalizer"


def test_services_and_ingresses_go_once_their_controller_has_let_go(kubernetes_api: Cluster) -> None:
    said: list[str] = []
    with kubernetes_api.namespace("exposed"), kubernetes_api.applied(_service(), _ingress()):
        assert {one["kind"] for one in find_exposed(kubernetes_api)} == {"Service", "Ingress"}
        with _letting_go(kubernetes_api, _service(), LOAD_BALANCER):
            delete_exposed(kubernetes_api, say=said.append, seconds=60)
        assert find_exposed(kubernetes_api) == []
    assert any("Service exposed/web" in line for line in said)


def test_a_load_balancer_that_nobody_deletes_is_named(kubernetes_api: Cluster) -> None:
    with kubernetes_api.namespace("exposed"), kubernetes_api.applied(_service()):
        with pytest.raises(RefusedError) as caught:
            delete_exposed(kubernetes_api, say=lambda _: None, seconds=0.1)
        kubernetes_api.patch(_service(), {"metadata": {"finalizers": None}})
    assert f"\n  Service exposed/web: finalizers {LOAD_BALANCER}" in str(caught.value)
    assert "kubectl -n exposed patch service web --type merge" in caught.value.remedy


def test_only_unused_claims_whose_volume_goes_with_them_are_deleted(kubernetes_api: Cluster) -> None:
    said: list[str] = []
    volumes = (_volume("kept", "Retain"), _volume("going", "Delete"), _volume("used", "Delete"))
    claims = kept, going, used = _claim("kept"), _claim("going"), _claim("used")
    with kubernetes_api.namespace("notebooks"), kubernetes_api.applied(*volumes, *claims):
        for claim in claims:
            kubernetes_api.await_(claim, lambda one: one["status"]["phase"] == "Bound", what="bound")
        assert {one["metadata"]["name"] for one in find_claims(kubernetes_api)} == {"going", "used"}
        with kubernetes_api.applied(_pod("used")):
            delete_claims(kubernetes_api, say=said.append, seconds=3)
            wait_until(lambda: kubernetes_api.read(going) is None)
            assert kubernetes_api.read(kept) is not None
            assert kubernetes_api.read(used) is not None
    assert "PersistentVolumeClaim notebooks/going" in said[0]
    left = "PersistentVolumeClaim notebooks/used is still there, used by editor: its volume may outlive the cluster"
    assert f"note: {left}" in said


def test_finalizers_of_a_lost_operator_are_removed(custom_resources: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a destroy that was interrupted between the operator and the namespaces."""
    monkeypatch.setattr("infra.lifecycle.teardown.workloads._GRACE", timedelta(seconds=-1))
    said: list[str] = []
    with custom_resources.namespace("orphaned"):
        custom_resources.create(_ray_cluster("orphaned", RAY))
        delete_workloads(custom_resources, say=said.append, seconds=60)
        assert find_workloads(custom_resources) == []
    assert f"RayCluster orphaned/stuck: its operator is not installed; removing its finalizer {RAY}" in said


def test_a_finalizer_of_somebody_else_is_left(custom_resources: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.lifecycle.teardown.workloads._GRACE", timedelta(seconds=-1))
    foreign = _ray_cluster("audited", RAY, "example.com/audit")
    with (
        custom_resources.namespace("audited"),
        _freed(custom_resources, foreign),
        pytest.raises(RefusedError) as caught,
    ):
        delete_workloads(custom_resources, say=lambda _: None, seconds=5)
    assert str(caught.value).splitlines()[1:2] == ["  RayCluster audited/stuck: finalizers example.com/audit"]


def test_a_namespace_that_is_kept_says_by_what(custom_resources: Cluster) -> None:
    stuck = _ray_cluster("terminating", RAY)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "terminating"}}
    with custom_resources.namespace("terminating"), _freed(custom_resources, stuck):
        said = "namespace terminating is being deleted: "
        assert not any(line.startswith(said) for line in kept_namespaces(custom_resources))
        custom_resources.delete(namespace)
        custom_resources.await_(namespace, _has_conditions, what="explained")
        (line,) = (line for line in kept_namespaces(custom_resources) if line.startswith(said))
    assert f"{RAY} in 1 resource instances" in line


@contextmanager
def _freed(api: Cluster, manifest: Manifest) -> Iterator[None]:
    """An object that exists in the context, and whose finalizers are removed at its end."""
    api.create(manifest)
    try:
        yield
    finally:
        api.patch(manifest, {"metadata": {"finalizers": None}})


def _has_conditions(namespace: Manifest) -> bool:
    conditions = namespace["status"].get("conditions") or ()
    return any(one["type"] == "NamespaceFinalizersRemaining" and one["status"] == "True" for one in conditions)


@contextmanager
def _letting_go(api: Cluster, manifest: Manifest, finalizer: str) -> Iterator[None]:
    """A controller that removes its finalizer once the object's deletion was requested."""
    ended = Event()

    def control() -> None:
        while not ended.wait(0.2):
            found = api.read(manifest)
            if found is not None and "deletionTimestamp" in found["metadata"]:
                assert finalizer in found["metadata"]["finalizers"]
                api.patch(manifest, {"metadata": {"finalizers": None}})
                return

    thread = Thread(target=control)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _object(version: str, kind: str, name: str, namespace: str | None, spec: Manifest, *finalizers: str) -> Manifest:
    made = api_object(version, kind, name, namespace=namespace, spec=spec)
    made["metadata"] |= {"finalizers": list(finalizers)} if finalizers else {}
    return made


def _service() -> Manifest:
    spec = {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}], "selector": {"app": "web"}}
    return _object("v1", "Service", "web", "exposed", spec, LOAD_BALANCER)


def _ingress() -> Manifest:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    return _object("networking.k8s.io/v1", "Ingress", "web", "exposed", {"defaultBackend": backend})


def _volume(name: str, policy: str) -> Manifest:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": policy,
        "storageClassName": "none",
        "claimRef": {"namespace": "notebooks", "name": name},
        "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{name}"},
    }
    return _object("v1", "PersistentVolume", name, None, spec)


def _claim(name: str) -> Manifest:
    spec = {"storageClassName": "none", "volumeName": name, "accessModes": ["ReadWriteOnce"]}
    size = {"resources": {"requests": {"storage": "1Gi"}}}
    return _object("v1", "PersistentVolumeClaim", name, "notebooks", {**spec, **size})


def _pod(claim: str) -> Manifest:
    spec = {
        # A pod uses its claims once it has a node. This one has no kubelet to confirm that the pod has ended.
        "nodeName": "elsewhere",
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "editor", "image": "editor"}],
        "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": claim}}],
    }
    return _object("v1", "Pod", "editor", "notebooks", spec)


def _ray_cluster(namespace: str, *finalizers: str) -> Manifest:
    head = {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "head", "image": "ray"}]}}}
    return _object("ray.io/v1", "RayCluster", "stuck", namespace, {"headGroupSpec": head}, *finalizers)
