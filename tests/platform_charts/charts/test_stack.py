"""The Kubernetes part of the recorded graph: dependencies, options and resolved outputs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
import pytest
import yaml

from infra.aws.program import make_platform
from infra.preview.recording import UNKNOWN, Recording, Resource, record_program
from infra.spec.errors import RefusedError
from infra.spec.release import load_release
from platform_charts.charts.crds import CRD_GROUPS, CrdFolder, CrdSource
from platform_charts.install.objects import type_token
from platform_charts.install.platform import install
from platform_charts.objects.queueing import AGGREGATED_ROLES
from tests.infra.aws.graphs import ENVIRONMENTS, dependencies_of, graph, preview, settings_of, varied, with_lustre
from tests.platform_charts.charts.archives import crd
from tests.platform_charts.charts.releases import installs_of

RELEASE = "kubernetes:helm.sh/v3:Release"


@pytest.fixture(scope="module")
def crds(tmp_path_factory: pytest.TempPathFactory) -> CrdSource:
    """A CRD of every group."""
    folder = tmp_path_factory.mktemp("crds")
    for group in CRD_GROUPS.values():
        (folder / f"{group}.yaml").write_text(yaml.safe_dump(crd("widgets", group)), encoding="utf-8")
    return CrdFolder(folder)


@pytest.fixture(scope="module")
def whole() -> Recording:
    """The graph of prod."""
    return graph("prod")


def installed(crds: CrdSource, *, is_preview: bool) -> Recording:
    """The graph of dev with CRDs."""
    settings = settings_of("dev")
    return record_program(
        lambda: install(make_platform(settings), crds=crds),
        stack="dev",
        account=settings.aws.allowed_accounts[0],
        region=settings.aws.region,
        is_preview=is_preview,
    )


def inputs(recording: Recording) -> dict[str, dict[str, Any]]:
    """The inputs of every resource; waiting for the CRDs adds dependencies to the charts."""
    return {one.urn: one.properties for one in recording.resources}


class EmptyCluster(str):
    """The API server of a cluster without CRDs, as the name of the cluster."""

    __slots__ = ()

    def read(self, _manifest: object) -> None:
        """No object."""


def test_an_update_applies_the_crds_before_the_charts_and_keeps_them_out_of_the_state(
    crds: CrdSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """17 CRDs were 97 % of a stack's state; Helm would not upgrade them."""
    applied: list[str] = []
    monkeypatch.setattr(
        "platform_charts.install.platform.connect_to", lambda cluster, *, region: EmptyCluster(cluster.name + region)
    )
    monkeypatch.setattr(
        "platform_charts.install.platform.apply_crds",
        lambda api, found: applied.extend(f"{api} {one['metadata']['name']}" for one in found),
    )
    assert installed(crds, is_preview=True).resources == preview("dev").resources
    assert applied == []
    assert inputs(installed(crds, is_preview=False)) == inputs(graph("dev"))
    assert applied == [f"rtp-devus-east-1 widgets.{group}" for group in CRD_GROUPS.values()]


def test_a_crd_that_is_refused_fails_the_update(crds: CrdSource, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_api: object, _crds: object) -> None:
        raise RefusedError("the API server refuses a CRD", remedy="none")

    monkeypatch.setattr("platform_charts.install.platform.connect_to", lambda _cluster, *, region: EmptyCluster(region))
    monkeypatch.setattr("platform_charts.install.platform.apply_crds", fail)
    with pytest.raises(pulumi.RunError, match="the API server refuses a CRD\n  remedy: none"):
        installed(crds, is_preview=False)


def missing(recording: Recording, later: Resource, needed: list[Resource]) -> list[str]:
    """Names of resources that neither `later` nor its ancestors depend on."""
    found = dependencies_of(recording, later)
    return [one.name for one in needed if one.urn not in found]


@cache
def on_the_cluster(environment: str) -> tuple[Resource, ...]:
    """All Kubernetes resources."""
    return tuple(one for one in graph(environment).resources if one.type.startswith("kubernetes:"))


def test_all_kubernetes_resources_use_one_provider_and_only_test_clusters_drop_unreachable_ones() -> None:
    for environment in ENVIRONMENTS:
        provider = graph(environment).find("pulumi:providers:kubernetes", "kubernetes")
        assert {one.provider for one in on_the_cluster(environment)} == {provider.urn}
        given = provider.properties
        options = ("enableServerSideApply", "enablePatchForce", "upsertExistingObjects")
        assert {given[name] for name in options} == {"true"}
        # Where it is not set, a variable sets it, which a value here would override.
        assert given.get("deleteUnreachable") == ("true" if environment == "test" else None)


def test_the_kubeconfig_contains_no_credentials() -> None:
    provider = graph("dev").find("pulumi:providers:kubernetes", "kubernetes").properties
    (user,) = json.loads(provider["kubeconfig"])["users"]
    assert user["user"]["exec"]["args"][-3:] == ["rtp-dev", "--output", "json"]
    assert set(user["user"]) == {"exec"}


def test_kubernetes_resources_depend_on_nodes_and_add_ons() -> None:
    recording = graph("prod")
    system = [one for one in recording.of_type("aws:eks/nodeGroup:NodeGroup") if one.name.startswith("system-")]
    assert len(system) == 3
    needed = [
        *system,
        recording.find("aws:eks/addon:Addon", "aws-ebs-csi-driver"),
        *recording.of_type("aws:eks/podIdentityAssociation:PodIdentityAssociation"),
    ]
    for one in on_the_cluster("prod"):
        assert missing(recording, one, needed) == []


def test_charts_depend_on_namespaces_policies_and_storage_classes_and_custom_resources_on_charts(
    whole: Recording,
) -> None:
    teams = {team.name for team in settings_of("prod").teams}
    kinds = ("core/v1:Namespace", "networking.k8s.io/v1:NetworkPolicy", "storage.k8s.io/v1:StorageClass")
    objects = [one for kind in kinds for one in whole.of_type(f"kubernetes:{kind}")]
    needed = [
        one for one in objects if not teams & {one.properties["metadata"].get(key) for key in ("name", "namespace")}
    ]
    assert {one.type for one in needed} == {f"kubernetes:{kind}" for kind in kinds}
    assert [chart.name for chart in whole.of_type(RELEASE) if missing(whole, chart, needed)] == []
    custom = [one for one in whole.resources if "kueue.x-k8s.io" in one.type or "monitoring.coreos.com" in one.type]
    charts = [whole.find(RELEASE, "kueue"), whole.find(RELEASE, "kube-prometheus-stack")]
    assert custom != []
    assert [one.name for one in custom if missing(whole, one, charts)] == []
    server = whole.find("kubernetes:apps/v1:Deployment", "deployment-mlflow-mlflow")
    assert missing(whole, server, [*whole.of_type("kubernetes:batch/v1:Job")]) == [], "its bootstrap job"


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_teams_namespaces_and_kueues_roles_are_deleted_while_queues_and_operators_live(environment: str) -> None:
    """The operators remove the finalizers of jobs, without which a namespace is never gone; Pulumi deletes in reverse order."""
    recording, teams = graph(environment), {team.name for team in settings_of(environment).teams}
    needed = [
        recording.find(RELEASE, "kuberay-operator"),
        recording.find(RELEASE, "kueue"),
        *(one for one in recording.resources if one.type.endswith(":ClusterQueue")),
        *recording.of_type("kubernetes:core/v1:PersistentVolume"),
    ]
    namespaces = {one.properties["metadata"]["name"]: one for one in recording.of_type("kubernetes:core/v1:Namespace")}
    contents = [
        one for one in on_the_cluster(environment) if one.properties.get("metadata", {}).get("namespace") in teams
    ]
    assert teams <= set(namespaces)
    assert {name: missing(recording, namespaces[name], needed) for name in teams} == {name: [] for name in teams}
    roles = [one for one in on_the_cluster(environment) if "aggregationRule" in one.properties]
    assert {one.properties["metadata"]["name"] for one in roles} == set(AGGREGATED_ROLES)
    assert [role.name for role in roles if missing(recording, role, [recording.find(RELEASE, "kueue")])] == []
    # Deleting them one by one would wait for a claim that a running pod uses.
    assert contents != []
    assert {one.deleted_with == namespaces[one.properties["metadata"]["namespace"]].urn for one in contents} == {True}


def references(user: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Kinds and names of what an object of the cluster keeps while it exists."""
    name, spec = user["metadata"]["name"], user.get("spec", {})
    if user["kind"] == "Namespace":  # of a team
        yield from (("PersistentVolume", f"{claim}-{name}") for claim in ("runs", "datasets", "lustre"))
        yield "ClusterQueue", name
    elif user["kind"] == "PersistentVolumeClaim":
        yield "PersistentVolume", spec["volumeName"]
    elif user["kind"] == "ClusterQueue":
        yield from (("ResourceFlavor", one["name"]) for group in spec["resourceGroups"] for one in group["flavors"])
    elif user["kind"] == "ResourceFlavor":
        yield "Topology", spec.get("topologyName", "")


def deletions(before: Recording, after: Recording) -> dict[str, int]:
    """When an update deletes each resource that is gone, by URN: Pulumi looks only at dependencies among these."""
    left = {one.urn: one for one in before.resources if one.urn not in {two.urn for two in after.resources}}
    ranks, rank = dict[str, int](), 0
    while left:
        free = [
            urn
            for urn, one in left.items()
            if not left.keys() & {*one.dependencies, *filter(None, (one.parent, one.deleted_with))}
        ]
        ranks |= dict.fromkeys(free, rank)
        left = {urn: one for urn, one in left.items() if urn not in ranks}
        rank -= 1
    return ranks


def test_a_claim_is_replaced_with_its_volume() -> None:
    """Kubernetes keeps a volume that is being deleted as long as there is its claim."""
    recording = with_lustre("dev")
    volumes = {
        one.properties["metadata"]["name"]: one.urn for one in recording.of_type("kubernetes:core/v1:PersistentVolume")
    }
    claims = recording.of_type("kubernetes:core/v1:PersistentVolumeClaim")
    assert claims != ()
    assert [one.replace_with for one in claims] == [(volumes[one.properties["spec"]["volumeName"]],) for one in claims]


P5 = {
    "name": "p5",
    "instance_type": "p5.48xlarge",
    "min_size": 2,
    "desired_size": 2,
    "max_size": 2,
    "availability_zones": ["us-east-1a"],
    "capacity": {"kind": "on_demand"},
    "topology": "network",
}
TEAMS = [{"name": "kept", "gpus": {}}, {"name": "gone", "gpus": {}}]
WHOLE = {"teams": TEAMS, "gpu_groups": [P5]}
SMALL = {"teams": TEAMS[:1], "gpu_groups": []}


@pytest.mark.parametrize(
    ("before", "after", "pairs"),
    [
        pytest.param(
            lambda: varied(WHOLE),
            lambda: varied(SMALL),
            {
                ("Namespace", "PersistentVolume"),
                ("Namespace", "ClusterQueue"),
                ("ClusterQueue", "ResourceFlavor"),
                ("ResourceFlavor", "Topology"),
            },
            id="a team and a group",
        ),
        pytest.param(
            lambda: with_lustre("dev"), lambda: varied({}), {("PersistentVolumeClaim", "PersistentVolume")}, id="Lustre"
        ),
    ],
)
def test_an_update_deletes_no_object_before_one_that_keeps_it(
    before: Callable[[], Recording], after: Callable[[], Recording], pairs: set[tuple[str, str]]
) -> None:
    """Kubernetes and Kueue keep what is used, and Pulumi waits for it before it deletes the user."""
    recording = before()
    ranks = deletions(recording, after())
    gone = [one for one in recording.resources if one.urn in ranks and "metadata" in one.properties]
    found = [
        (user, used)
        for user in gone
        for used in gone
        if (used.properties["kind"], used.properties["metadata"]["name"]) in set(references(user.properties))
    ]
    assert {(user.properties["kind"], used.properties["kind"]) for user, used in found} >= pairs
    assert [(user.name, used.name) for user, used in found if ranks[user.urn] > ranks[used.urn]] == []


def test_charts_are_installed_atomically_from_the_verified_archive_and_no_placeholder_is_left() -> None:
    for environment in ENVIRONMENTS:
        installs = installs_of(settings_of(environment))
        assert {one.name for one in graph(environment).of_type(RELEASE)} == set(installs)
        for one in graph(environment).of_type(RELEASE):
            version = load_release().charts[one.name].version
            found = one.properties
            assert found["chart"] == f"../.local/cache/charts/{one.name}-{version}.tgz"
            assert "repositoryOpts" not in found
            assert (found["version"], found["namespace"]) == (version, installs[one.name].namespace)
            assert (found["atomic"], found["cleanupOnFail"], found["createNamespace"]) == (True, True, False)
            assert found["timeout"] >= 600
            assert found["skipCrds"] is installs[one.name].skip_crds is (one.name in CRD_GROUPS)
        assert [one.urn for one in on_the_cluster(environment) if "<<" in json.dumps(one.properties)] == []


def test_deferred_outputs_are_unknown_in_a_preview_and_resolved_afterwards() -> None:
    kind, name = "kubernetes:core/v1:PersistentVolume", "persistentvolume-runs-research"
    assert preview("prod").find(kind, name).properties["spec"]["csi"]["volumeHandle"] is UNKNOWN
    handle: str = graph("prod").find(kind, name).properties["spec"]["csi"]["volumeHandle"]
    assert handle.startswith("fs-")
    assert "::fsap-" in handle


def test_an_object_has_the_type_token_of_the_providers_class() -> None:
    for version, kind, resource in (
        ("v1", "ConfigMap", kubernetes.core.v1.ConfigMap),
        ("apps/v1", "Deployment", kubernetes.apps.v1.Deployment),
        ("rbac.authorization.k8s.io/v1", "Role", kubernetes.rbac.v1.Role),
        ("networking.k8s.io/v1", "NetworkPolicy", kubernetes.networking.v1.NetworkPolicy),
    ):
        token = resource.pulumi_type
        assert type_token({"apiVersion": version, "kind": kind}) == token
