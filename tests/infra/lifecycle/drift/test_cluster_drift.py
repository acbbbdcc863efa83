"""What somebody changed in the cluster is found, and nothing else: on a real API server, with the objects of an environment."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from infra.lifecycle.drift.cluster import (
    being_deleted,
    compare,
    objects_of_state,
    rebind_volumes,
    refused_objects,
    take_back,
)
from infra.lifecycle.drift.difference import Difference
from infra.lifecycle.drift.helm import Release, changed_releases, installed_releases, way_back
from infra.lifecycle.rollout.queues import hold_queues, release_queues
from infra.spec.manifest import MANAGED_BY, PART_OF, Manifest, api_object
from tests.engines.kubernetes import Cluster
from tests.engines.kubernetes_platform import Environment, in_dev
from tests.platform_charts.charts.archives import crd


@pytest.mark.extended
@in_dev
def test_a_cluster_that_nobody_touched_and_a_held_queue_have_no_drift(environment: Environment) -> None:
    assert list(compare(environment.cluster, environment.manifests)) == []
    hold_queues(environment.cluster, "Hold")
    try:
        assert list(compare(environment.cluster, environment.manifests)) == []
    finally:
        release_queues(environment.cluster)


@pytest.fixture
def restored(environment: Environment) -> Iterator[Environment]:
    yield environment
    environment.cluster.apply_all(environment.manifests)


@pytest.mark.extended
@in_dev
def test_each_planted_change_is_found_with_its_field(restored: Environment) -> None:
    cluster = restored.cluster
    queue = _named(restored, "ClusterQueue", "research")
    policy = _named(restored, "NetworkPolicy", "default-deny")
    role = _named(restored, "Role", "submitter")
    quota = _named(restored, "ResourceQuota")
    flavors = cluster.apply(queue)["spec"]["resourceGroups"][0]["flavors"]
    flavors[0]["resources"][0]["nominalQuota"] = 1000
    cluster.patch(queue, {"spec": {"resourceGroups": [{**queue["spec"]["resourceGroups"][0], "flavors": flavors}]}})
    cluster.patch(role, {"rules": []})
    cluster.patch(quota, {"spec": {"hard": {"pods": "9999"}}})
    cluster.delete(policy)
    found = {one.resource: one for one in compare(cluster, restored.manifests)}
    assert set(found) == {_label(queue), _label(policy), _label(role), _label(quota)}
    assert found[_label(policy)].kind == "deleted"
    assert found[_label(role)].paths == ("rules",)
    assert found[_label(quota)].paths == ("spec.hard.pods",)
    (path,) = found[_label(queue)].paths
    assert path.startswith("spec.resourceGroups[0].flavors[0].resources[0].nominalQuota")


def changed(resource: str, *paths: str) -> Difference:
    """An object of the cluster that somebody has changed; without paths, deleted."""
    return Difference(where="cluster", resource=resource, kind="changed" if paths else "deleted", paths=paths)


def config_map(name: str, **data: str) -> Manifest:
    return api_object("v1", "ConfigMap", name, namespace="default", **({"data": data} if data else {}))


def test_an_object_that_is_being_deleted_is_named_and_left_out_of_updates(kubernetes_api: Cluster) -> None:
    """It looks like the stack's until its finalizer is removed, and what is written to it goes with it."""
    ours = {PART_OF: MANAGED_BY}
    kept, there = (api_object("v1", "ConfigMap", name, namespace="default", labels=ours) for name in ("kept", "there"))
    inputs = [
        {"urn": f"urn:{one['metadata']['name']}", "type": "kubernetes:core/v1:ConfigMap", "inputs": one}
        for one in (kept, there)
    ]
    state = {"deployment": {"resources": inputs}}
    with kubernetes_api.applied(there):
        kubernetes_api.create({**kept, "metadata": {**kept["metadata"], "finalizers": ["example.com/kept"]}})
        kubernetes_api.delete(kept)
        try:
            found = Difference(where="cluster", resource="ConfigMap default/kept", kind="being deleted")
            named = [*being_deleted(kubernetes_api, state), *compare(kubernetes_api, (kept, there))]
            assert [(one.resource, one.kind, one.paths) for one in named] == [
                (found.resource, found.kind, ("example.com/kept",))
            ] * 2
            assert refused_objects(state, named) == ("urn:kept",)
        finally:
            kubernetes_api.patch(kept, {"metadata": {"finalizers": None}})
        assert [one.kind for one in compare(kubernetes_api, (kept, there))] == ["deleted"]


def test_what_others_add_and_what_is_for_pulumi_is_not_compared(kubernetes_api: Cluster) -> None:
    plain = config_map("plain", level="info")
    metadata = {**plain["metadata"], "annotations": {"pulumi.com/skipAwait": "true"}}
    with kubernetes_api.applied(plain):
        kubernetes_api.patch(plain, {"metadata": {"labels": {"team": "theirs"}}})
        assert list(compare(kubernetes_api, [{**plain, "metadata": metadata}])) == []


def test_what_a_controller_writes_between_the_two_requests_is_no_drift(
    kubernetes_api: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, read = config_map("written", level="info"), kubernetes_api.read
    with kubernetes_api.applied(plain):
        stale = [read(plain)]
        kubernetes_api.patch(plain, {"metadata": {"annotations": {"revision": "1"}}})
        monkeypatch.setattr(kubernetes_api, "read", lambda one: stale.pop() if stale else read(one))
        assert list(compare(kubernetes_api, [plain])) == []
        assert stale == []


def test_what_the_api_server_refuses_is_not_good_and_what_it_does_not_serve_is_gone(kubernetes_api: Cluster) -> None:
    odd = config_map("odd")
    with kubernetes_api.applied(odd):
        (found,) = compare(kubernetes_api, [{**odd, "unheard": "of"}])
    assert (found.resource, found.kind) == ("ConfigMap default/odd", "unknown")
    assert ".unheard: field not declared in schema" in found.paths[0]
    gone = api_object("example.com/v1", "Widget", "one", namespace="default")
    assert list(compare(kubernetes_api, [gone])) == [changed("Widget default/one")]


def test_an_object_made_anew_with_fields_that_nobody_can_change_is_named_with_them(kubernetes_api: Cluster) -> None:
    """What the API server refuses in any object like this one is unknown still."""
    container = {"name": "main", "image": "main:1"}
    labels = {"app": "immutable"}
    pods = {"metadata": {"labels": labels}, "spec": {"containers": [container], "restartPolicy": "Never"}}
    job = api_object("batch/v1", "Job", "immutable", namespace="default", spec={"template": pods})
    storage = api_object("storage.k8s.io/v1", "StorageClass", "immutable")
    theirs = {**storage, "provisioner": "ebs.csi.aws.com", "parameters": {"type": "gp2"}}
    ours = {**theirs, "parameters": {"type": "gp3"}}
    changed_pods = {"containers": [{**container, "image": "main:2"}], "restartPolicy": "Never"}
    with kubernetes_api.applied(job, theirs):
        wanted = [{**job, "spec": {"template": {**pods, "spec": changed_pods}}}, ours]
        found = list(compare(kubernetes_api, wanted))
        assert [(one.kind, one.paths) for one in found] == [
            ("immutable", ("spec.template",)),
            ("immutable", ("parameters",)),
        ]
        odd = {**ours, "reclaimPolicy": "Never"}
        assert [one.kind for one in compare(kubernetes_api, [odd])] == ["unknown"]
    state = {"urn": "urn:s", "type": "kubernetes:storage.k8s.io/v1:StorageClass", "inputs": ours}
    assert refused_objects({"deployment": {"resources": [state]}}, found) == ("urn:s",)
    assert refused_objects({"deployment": {"resources": [state]}}, found[:1]) == ()


@pytest.mark.extended
def test_a_change_of_an_object_of_a_chart_is_found_in_its_namespace_and_outside(kubernetes_api: Cluster) -> None:
    """Charts do not say which of their objects have a namespace."""
    settings = api_object("v1", "ConfigMap", "settings", data={"level": "info"})
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    role = api_object("rbac.authorization.k8s.io/v1", "ClusterRole", "drift-sample", rules=[rule])
    applied = {**settings, "metadata": {"name": "settings", "namespace": "charts"}}
    with kubernetes_api.namespace("charts"), kubernetes_api.applied(applied, role, _release("charts", settings, role)):
        mine = [one for found in _installed(kubernetes_api) for one in found.objects()]
        assert mine[0] == applied
        assert list(compare(kubernetes_api, mine)) == []
        kubernetes_api.patch(applied, {"data": {"level": "debug"}})
        kubernetes_api.patch(role, {"rules": []})
        assert list(compare(kubernetes_api, mine)) == [
            changed("ConfigMap charts/settings", "data.level"),
            changed("ClusterRole drift-sample", "rules"),
        ]


@pytest.mark.extended
def test_a_release_that_somebody_upgraded_or_rolled_back_is_found(kubernetes_api: Cluster) -> None:
    """A refresh finds neither."""
    inputs = {"namespace": "charts", "name": "sample", "version": "v1.2.3", "values": {"level": "info"}}
    state = {"deployment": {"resources": [{"type": "kubernetes:helm.sh/v3:Release", "urn": "urn:r", "inputs": inputs}]}}
    with kubernetes_api.namespace("charts"):
        for version, values, paths in (
            ("1.2.3", {"level": "info"}, ()),
            ("1.2.3", {"level": "debug"}, ("values",)),
            ("1.2.2", None, ("version", "values")),
        ):
            with kubernetes_api.applied(_release("charts", version=version, values=values)):
                found = list(_installed(kubernetes_api))
            assert [one.paths for one in changed_releases(found, state)] == ([paths] if paths else [])
        inputs["values"] = {"password": {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270"}}
        assert [one.paths for one in changed_releases(found, state)] == [("version",)], "the values are encrypted"
    assert list(changed_releases([], state)) == [], "it is uninstalled"


def test_a_changed_release_goes_back_to_the_last_revision_of_the_stack(kubernetes_api: Cluster) -> None:
    inputs = {"namespace": "charts", "name": "sample", "version": "1.2.3", "values": {"level": "info"}}
    state = {"deployment": {"resources": [{"type": "kubernetes:helm.sh/v3:Release", "urn": "urn:r", "inputs": inputs}]}}
    histories = [("info", "superseded"), ("warning", "superseded"), ("info", "superseded"), ("debug", "deployed")]
    revisions = [
        _release("charts", version="1.2.3", values={"level": level}, revision=number, status=status)
        for number, (level, status) in enumerate(histories, start=9)
    ]
    with kubernetes_api.namespace("charts"), kubernetes_api.applied(*revisions):
        [found] = changed_releases(_installed(kubernetes_api), state)
        assert way_back(kubernetes_api, state, found) == "helm rollback sample 11 --namespace charts"
        inputs["version"] = "1.2.4"
        assert way_back(kubernetes_api, state, found).startswith("helm history sample --namespace charts")


@pytest.mark.extended
def test_changes_of_charts_objects_and_of_crds_are_taken_back(kubernetes_api: Cluster) -> None:
    """Deleted, changed, and owned by somebody else, who forces their own value; what cannot be applied is said."""
    labels = {"app": "operator"}
    container = {"name": "operator", "image": "operator:1", "env": [{"name": "LEVEL", "value": "info"}]}
    pods = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": pods}
    operator = api_object("apps/v1", "Deployment", "operator", namespace="fixed", spec=spec)
    settings = api_object("v1", "ConfigMap", "settings", namespace="fixed", data={"level": "info"})
    reference = {"service": {"name": "operator", "namespace": "fixed"}}
    hook = {
        "name": "v.fixed.example.com",
        "clientConfig": reference,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    webhook = api_object(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        "fixed",
        webhooks=[{**hook, "failurePolicy": "Fail"}],
    )
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
    definition = crd("ants", "fixed.example.com")
    definition["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}
    wanted = [definition, operator, settings, webhook]
    with kubernetes_api.namespace("fixed"), kubernetes_api.applied(*wanted):
        assert list(compare(kubernetes_api, wanted)) == []
        theirs = {"image": "operator:theirs", "name": "operator"}
        pods = {"metadata": {"labels": labels}, "spec": {"containers": [theirs]}}
        kubernetes_api.apply({**operator, "spec": {**spec, "replicas": 0, "template": pods}}, manager="theirs")
        kubernetes_api.patch(webhook, {"webhooks": [{**hook, "failurePolicy": "Ignore"}]})
        versions = [
            {**one, "schema": {"openAPIV3Schema": {"type": "object"}}} for one in definition["spec"]["versions"]
        ]
        kubernetes_api.patch(definition, {"spec": {"versions": versions}})
        kubernetes_api.delete(settings)
        found = {one.resource: one for one in compare(kubernetes_api, wanted)}
        assert {one.kind for one in found.values()} == {"changed", "deleted"}
        assert len(found) == len(wanted)
        assert {"spec.replicas", "spec.template.spec.containers[0].image"} <= {
            *found["Deployment fixed/operator"].paths
        }
        assert list(take_back(kubernetes_api, found.values())) == []
        assert list(compare(kubernetes_api, wanted)) == []
        immutable = {**operator, "spec": {**spec, "selector": {"matchLabels": {"app": "other"}}}}
        odd = Difference(where="cluster", resource="Deployment fixed/operator", kind="changed", wanted=immutable)
        (problem,) = take_back(kubernetes_api, [odd])
        assert problem.startswith("Deployment fixed/operator: ")


def test_a_volume_whose_claim_somebody_deleted_is_taken_by_the_next_one(kubernetes_api: Cluster) -> None:
    spec = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    claim = api_object("v1", "PersistentVolumeClaim", "kept", namespace="default")
    claim["spec"] = {**spec, "volumeName": "kept", "resources": {"requests": {"storage": "1Gi"}}}
    volume = api_object("v1", "PersistentVolume", "kept")
    reserved = {"claimRef": {"namespace": "default", "name": "kept"}, "persistentVolumeReclaimPolicy": "Retain"}
    volume["spec"] = {**spec, **reserved, "capacity": {"storage": "1Gi"}, "nfs": {"server": "127.0.0.1", "path": "/"}}
    ours = {"urn": "urn:v", "type": "kubernetes:core/v1:PersistentVolume", "inputs": volume}

    def await_phase(phase: str) -> None:
        kubernetes_api.await_(volume, lambda one: one["status"]["phase"] == phase, what=phase)

    with kubernetes_api.applied(volume, claim):
        await_phase("Bound")
        kubernetes_api.delete(claim)
        await_phase("Released")
        rebind_volumes(kubernetes_api, {"deployment": {"resources": [ours]}})
        kubernetes_api.apply(claim)
        await_phase("Bound")


def test_the_objects_of_a_state_are_compared_without_their_secrets() -> None:
    plain = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}
    secret = {**plain, "data": {"x": {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270"}}}
    kind = "kubernetes:core/v1:ConfigMap"
    resources = [
        {"urn": "urn:a", "type": kind, "inputs": {**plain, "__fieldManager": "pulumi"}},
        {"urn": "urn:b", "type": kind, "inputs": secret},
        {"urn": "urn:c", "type": kind, "inputs": plain, "delete": True},
        {"type": "kubernetes:helm.sh/v3:Release", "inputs": {"chart": "kueue"}},
        {"type": "aws:ec2/vpc:Vpc", "inputs": {"cidrBlock": "10.0.0.0/16"}},
        {"type": "rtp:kubernetes:Objects"},
    ]
    without_data = {key: value for key, value in plain.items() if key != "data"}
    assert objects_of_state({"deployment": {"resources": resources}}) == {"urn:a": plain, "urn:b": without_data}
    assert objects_of_state({"deployment": None}) == {}


def test_a_deleted_secret_is_found_and_its_content_is_not_compared(kubernetes_api: Cluster) -> None:
    secret = api_object("v1", "Secret", "token", namespace="default")
    with kubernetes_api.applied({**secret, "stringData": {"token": "x"}}):
        assert list(compare(kubernetes_api, [secret])) == []
    assert list(compare(kubernetes_api, [secret])) == [changed("Secret default/token")]


def _named(environment: Environment, kind: str, name: str | None = None) -> Manifest:
    return next(one for one in environment.manifests if one["kind"] == kind and name in {None, one["metadata"]["name"]})


def _label(one: Manifest) -> str:
    namespace = one["metadata"].get("namespace")
    return f"{one['kind']} {f'{namespace}/' if namespace else ''}{one['metadata']['name']}"


def _installed(api: Cluster) -> Iterator[Release]:
    return (one for one in installed_releases(api) if one.namespace == "charts")


def _release(
    namespace: str,
    *objects: Any,  # noqa: ANN401 - objects of any kind
    version: str = "1",
    values: Mapping[str, str] | None = None,
    revision: int = 1,
    status: str = "deployed",
) -> Manifest:
    chart = {"metadata": {"name": "sample", "version": version}}
    text = yaml.safe_dump_all(objects)
    named = {"name": "sample", "namespace": namespace, "version": revision}
    release = {**named, "manifest": text, "chart": chart, "config": values}
    text = base64.b64encode(gzip.compress(json.dumps(release).encode())).decode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "helm.sh/release.v1",
        "metadata": {
            "name": f"sh.helm.release.v1.sample.v{revision}",
            "namespace": namespace,
            "labels": {"owner": "helm", "status": status, "name": "sample"},
        },
        "data": {"release": base64.b64encode(text.encode()).decode()},
    }
