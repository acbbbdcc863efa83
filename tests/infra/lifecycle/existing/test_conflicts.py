"""What the platform would fight with on an existing cluster, planted on a real API server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from infra.lifecycle.existing.cluster import AddOn, FoundCluster
from infra.lifecycle.existing.cluster_rules import needed_addons
from infra.lifecycle.existing.conflicts import conflicts
from infra.lifecycle.teardown.load_balancers import find_exposed
from infra.lifecycle.teardown.namespaces import own_namespaces
from infra.lifecycle.teardown.volumes import find_claims, find_volumes
from infra.lifecycle.teardown.workloads import find_workloads
from infra.spec.errors import RefusedError
from infra.spec.manifest import Manifest, api_object, labels
from infra.spec.node_labels import GROUP_LABEL
from infra.spec.release import load_release
from infra.spec.settings import StackSettings, from_mapping
from tests.engines.kubernetes import Cluster
from tests.engines.kubernetes_platform import Deployments
from tests.infra.aws.graphs import settings_of
from tests.infra.lifecycle.existing.network import account
from tests.infra.lifecycle.preflight.test_checks import case
from tests.infra.spec.samples import changed
from tests.infra.spec.test_existing import example

RELEASE = load_release()
THEIRS = "theirs"
TEAM = "new-team"
DISCOVERY = "--node-group-auto-discovery=asg:tag="


def settings() -> StackSettings:
    """The example of an existing cluster, with a team of a name that no other test uses."""
    return from_mapping(changed(example("existing-cluster"), {"teams.0.name": TEAM}), file="sample")


def found(*, without: str = "") -> FoundCluster:
    """What AWS says about a cluster with all EKS add-ons but one."""
    addon = AddOn(version="v1.99.0-eksbuild.1", status="ACTIVE", stack="")
    names = needed_addons(settings_of("existing-cluster"), RELEASE)
    text = dict.fromkeys(("vpc_id", "service_cidr", "endpoint", "authority", "security_group_id"), "")
    sets = ("subnet_cidrs", "node_security_groups", "known_security_groups", "admitted", "foreign_entries", "stacks")
    facts: dict[str, Any] = {
        **text,
        **dict.fromkeys(sets, frozenset()),
        "name": "shared",
        "status": "ACTIVE",
        "version": "1.35",
        "authentication": "API",
        "ip_family": "ipv4",
        "has_private_endpoint": True,
        "driver_roles": {},
        "foreign_associations": {},
    }
    return FoundCluster(**facts, addons={name: addon for name in names if name != without})


def workload(kind: str, name: str, image: str, *, namespace: str = THEIRS, **container: object) -> Manifest:
    """A Deployment without pods, or a DaemonSet, of one container."""
    match = {"app": name}
    template = {"metadata": {"labels": match}, "spec": {"containers": [{"name": "main", "image": image, **container}]}}
    size = {"replicas": 0} if kind == "Deployment" else {}
    spec = {"selector": {"matchLabels": match}, "template": template, **size}
    return api_object("apps/v1", kind, name, namespace=namespace, spec=spec)


@pytest.fixture(scope="module")
def cluster(custom_resources: Cluster, deployments: Deployments) -> Iterator[Cluster]:
    """A cluster without the platform, with a namespace of somebody else."""
    with deployments.away(), custom_resources.namespace(THEIRS):
        yield custom_resources


def answers(cluster: Cluster, *, without: str = "", crds: Iterable[Manifest] = ()) -> list[str]:
    told = conflicts(settings(), RELEASE, found(without=without), cluster, crds)
    return [f"{message} | {remedy}" for message, remedy in told]


AUTOSCALER = "registry.k8s.io/autoscaling/cluster-autoscaler:v1.34.0"
DEVICES = workload("DaemonSet", "gpus", "nvcr.io/nvidia/k8s-device-plugin:v0.17.0")
TAGS = "k8s.io/cluster-autoscaler/enabled,k8s.io/cluster-autoscaler/shared"
CONFLICTS: tuple[tuple[Manifest, str], ...] = (
    (
        api_object("storage.k8s.io/v1", "StorageClass", "gp3", provisioner="ebs.csi.aws.com"),
        "StorageClass gp3 exists and is not the platform's, which would take it over | rename or delete it",
    ),
    (
        workload("Deployment", "ray-operator", "quay.io/kuberay/operator:v1.4.0"),
        "Deployment theirs/ray-operator is an installation of kuberay-operator that is not the platform's: two operators",
    ),
    (
        workload("Deployment", "queues", f"mirror:5000/k8s/kueue/kueue@sha256:{'0' * 64}"),
        "queues is an installation of kueue",
    ),
    (
        workload("Deployment", "operator", "quay.io/prometheus-operator/prometheus-operator:v0.90.0"),
        "Deployment theirs/operator is an installation of prometheus-operator",
    ),
    (
        workload("Deployment", "nfd-master", "registry.k8s.io/nfd/node-feature-discovery:v0.17.0"),
        "Deployment theirs/nfd-master is an installation of node-feature-discovery that is not the platform's: two masters",
    ),
    (workload("Deployment", "gpu-operator", "nvcr.io/nvidia/gpu-operator:v26"), "gpu-operator would install a driver"),
    (DEVICES, f"offer the same GPUs | give it a required node affinity with `{GROUP_LABEL}` DoesNotExist"),
    (workload("DaemonSet", "exporter", "quay.io/prometheus/node-exporter:v1.9.0"), "would need the same port of the"),
    (
        workload("Deployment", "scaler", AUTOSCALER, command=["./cluster-autoscaler", f"{DISCOVERY}{TAGS}"]),
        "Deployment theirs/scaler scales every node group of the cluster, the stack's too",
    ),
    (
        workload(
            "Deployment", "cluster-autoscaler", AUTOSCALER, namespace="kube-system", args=[f"{DISCOVERY}their-tag"]
        ),
        "Deployment kube-system/cluster-autoscaler has the name of the platform's autoscaler",
    ),
    (workload("DaemonSet", "aws-node", "x/amazon-k8s-cni", namespace="kube-system"), "enforces no NetworkPolicy"),
)


def test_each_planted_conflict_is_found_with_its_reason(cluster: Cluster) -> None:
    with cluster.applied(*(planted for planted, _ in CONFLICTS)):
        told = answers(cluster)
    for _, expected in CONFLICTS:
        assert sum(expected in one for one in told) == 1, told
    assert sum("the VPC CNI assigns single addresses" in one for one in told) == 1, told
    assert len(told) == len(CONFLICTS) + 1


def avoiding(daemon: Manifest) -> Manifest:
    terms = [{"matchExpressions": [{"key": GROUP_LABEL, "operator": "DoesNotExist"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    found = deepcopy(daemon)
    found["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": required}
    return found


def test_what_only_looks_alike_or_is_the_platforms_is_no_conflict(cluster: Cluster) -> None:
    assert answers(cluster) == []
    ours = f"{DISCOVERY}k8s.io/cluster-autoscaler/shared=owned,stack=ray-train-platform/existing-cluster"
    mark = labels("storage", version="0")
    prefixes = {"name": "ENABLE_PREFIX_DELEGATION", "value": "true"}
    cni = {"args": ["--enable-network-policy=true"], "env": [prefixes]}
    with cluster.applied(
        workload("Deployment", "other", "docker.io/their/operator:v1"),
        workload("DaemonSet", "not-ours", "their.example/k8s-device-plugin-exporter:v1"),
        workload("Deployment", "scaler", AUTOSCALER, args=[f"{DISCOVERY}k8s.io/cluster-autoscaler/shared,their-tag"]),
        workload("Deployment", "cluster-autoscaler", AUTOSCALER, namespace="kube-system", args=[ours]),
        api_object("storage.k8s.io/v1", "StorageClass", "gp3", labels=mark, provisioner="ebs.csi.aws.com"),
        avoiding(DEVICES),
        workload("DaemonSet", "aws-node", "x/amazon-k8s-cni", namespace="kube-system", **cni),
    ):
        assert answers(cluster) == []


@pytest.mark.extended
def test_a_namespace_of_a_teams_name_is_a_conflict_until_it_is_the_platforms(cluster: Cluster) -> None:
    with cluster.namespace(TEAM):
        (told,) = answers(cluster)
    assert told.startswith(f"namespace {TEAM} exists and is not the platform's")
    assert "choose another name in teams" in told
    with cluster.namespace(TEAM, labels=labels("team", version="0")):
        assert answers(cluster) == []


def test_an_add_on_that_is_missing_is_named_unless_it_runs_by_itself(cluster: Cluster) -> None:
    (told,) = answers(cluster, without="coredns")
    assert "cluster shared lacks coredns: no EKS add-on, and no Deployment coredns in kube-system" in told
    with cluster.applied(workload("Deployment", "coredns", "x/coredns", namespace="kube-system")):
        assert answers(cluster, without="coredns") == []


def test_the_role_of_a_driver_that_is_no_add_on_is_that_of_its_service_account(cluster: Cluster) -> None:
    driver = workload("DaemonSet", "ebs-csi-node", "x/aws-ebs-csi-driver", namespace="kube-system")
    ours, other = (f"arn:aws:iam::111122223333:role/{name}" for name in ("shared-ebs-csi", "other"))
    with cluster.applied(driver):
        (told,) = answers(cluster, without="aws-ebs-csi-driver")
        assert f"aws-ebs-csi-driver of cluster shared has no role; cluster.existing.driver_roles says {ours}" in told
        for role, conflict in ((other, f"aws-ebs-csi-driver of cluster shared has {other};"), (ours, "")):
            named = "ServiceAccount", "ebs-csi-controller-sa"
            marks = {"eks.amazonaws.com/role-arn": role}
            account = api_object("v1", *named, namespace="kube-system", annotations=marks)
            with cluster.applied(account):
                found = answers(cluster, without="aws-ebs-csi-driver")
            assert [conflict in one for one in found] == [True] * bool(conflict)


def test_crds_of_another_kueue_are_named_although_it_no_longer_runs(cluster: Cluster) -> None:
    crds = list(cluster.items("apiextensions.k8s.io/v1", "CustomResourceDefinition"))
    kueue = sorted(one["metadata"]["name"] for one in crds if one["spec"]["group"] == "kueue.x-k8s.io")
    assert kueue
    (told,) = answers(cluster, crds=crds)
    assert told.startswith(f"{len(kueue)} CRDs of Kueue are of another installation")
    assert f"kubectl delete crd {' '.join(kueue)}" in told
    ours = {"meta.helm.sh/release-name": "kueue", "meta.helm.sh/release-namespace": "kueue-system"}
    for one in crds:
        one["metadata"]["annotations"] = {**(one["metadata"].get("annotations") or {}), **ours}
    assert answers(cluster, crds=crds) == []


def test_a_caller_whom_the_cluster_does_not_know_is_told_how_to_become_an_administrator(cluster: Cluster) -> None:
    with account():
        one = case(sections=example("existing-cluster"))
        # A cached property, as if the preflight had connected with a role that has no access entry.
        vars(one)["existing_api"] = cluster.seen_by("stranger", "strangers")
        said = r"cluster shared does not take arn:aws:sts::\d+:assumed-role/admin/alice"
        with pytest.raises(RefusedError, match=said) as caught:
            _ = one.crds_of_cluster
    assert "aws eks create-access-entry --cluster-name shared" in caught.value.remedy
    assert "add the role to cluster.existing.admins" in caught.value.remedy


@pytest.mark.extended
def test_a_teardown_finds_what_is_in_the_stacks_namespaces_and_leaves_what_others_have(cluster: Cluster) -> None:
    def contents(namespace: str) -> list[Manifest]:
        volume = f"volume-of-{namespace}"
        size = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
        disk = {**size, "capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": "Delete"}
        disk["hostPath"] = {"path": "/none"}
        claim = {**size, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": volume}
        balancer = {"type": "LoadBalancer", "ports": [{"port": 80}]}
        return [
            api_object("ray.io/v1", "RayJob", "digits", namespace=namespace, spec={}),
            api_object("v1", "Service", "site", namespace=namespace, spec=balancer),
            api_object("v1", "PersistentVolume", volume, spec=disk),
            api_object("v1", "PersistentVolumeClaim", "disk", namespace=namespace, spec=claim),
        ]

    def found(within: frozenset[str] | None) -> set[tuple[str, str]]:
        every = [*find_workloads(cluster, within=within), *find_exposed(cluster, within=within)]
        every += find_claims(cluster, within=within)
        return {(one["kind"], one["metadata"]["namespace"]) for one in every}

    kinds = ("RayJob", "Service", "PersistentVolumeClaim")
    with (
        cluster.namespace(TEAM, labels=labels("team", version="0")),
        cluster.applied(*contents(TEAM), *contents(THEIRS)),
    ):
        ours = own_namespaces(cluster)
        assert found(ours) == {(kind, TEAM) for kind in kinds}
        assert found(None) >= {(kind, namespace) for kind in kinds for namespace in (TEAM, THEIRS)}
    assert find_volumes(cluster, within=ours) == []
