"""What runs on an existing cluster and would fight with the platform, or already has one of its names; from the API server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from infra.kube.api import KubernetesApi
from infra.lifecycle.existing.cluster import DRIVER_ACCOUNTS, FoundCluster
from infra.lifecycle.existing.cluster_rules import needed_addons
from infra.lifecycle.preflight.answer import Answer
from infra.spec.cluster_names import KUEUE_API, KUEUE_NAMESPACE
from infra.spec.manifest import MANAGED_BY, PART_OF, Manifest, api_object
from infra.spec.names import STACK_TAG, cluster_name, stack_tag
from infra.spec.node_labels import GROUP_LABEL
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings
from platform_charts.charts.installs import installed_charts
from platform_charts.objects.namespaces import platform_namespaces
from platform_charts.objects.phases import ClusterFacts, platform_objects

_WORKLOADS: Mapping[str, tuple[str, str]] = {
    "vpc-cni": ("DaemonSet", "aws-node"),
    "kube-proxy": ("DaemonSet", "kube-proxy"),
    "coredns": ("Deployment", "coredns"),
    "eks-pod-identity-agent": ("DaemonSet", "eks-pod-identity-agent"),
    "metrics-server": ("Deployment", "metrics-server"),
    "eks-node-monitoring-agent": ("DaemonSet", "eks-node-monitoring-agent"),
    "aws-ebs-csi-driver": ("DaemonSet", "ebs-csi-node"),
    "aws-efs-csi-driver": ("DaemonSet", "efs-csi-node"),
    "aws-fsx-csi-driver": ("DaemonSet", "fsx-csi-node"),
}
"""Kind and name, in kube-system, of what runs for an add-on, also where it was not installed as an EKS add-on."""

_OPERATORS: Mapping[str, str] = {
    "kuberay-operator": "two operators would reconcile the same Ray clusters",
    "kueue": "two Kueues would admit the same jobs",
    "prometheus-operator": "two operators would reconcile the same Prometheus",
    "node-feature-discovery": "two masters would write the labels of the same nodes",
}
"""Why an operator must be the only one of its kind, by the image's name in the release."""

_DAEMONS: Mapping[str, str] = {
    "nvidia-device-plugin": "two plugins would offer the same GPUs",
    "aws-efa-k8s-device-plugin": "two plugins would offer the same EFA devices",
    "dcgm-exporter": "two exporters would sample the same GPUs",
    "node-exporter": "two exporters would need the same port of the node",
}
"""Why a daemon must not run on the stack's nodes, by the image's name in the release."""

_GPU_OPERATOR = "nvidia/gpu-operator"
"""Repository of NVIDIA's operator. It installs its plugins on a node that has GPUs, so until then only the operator itself shows."""

_AUTOSCALER = "cluster-autoscaler"
_DISCOVERY = "--node-group-auto-discovery=asg:tag="

_KUEUE = "kueue"
_KUEUE_GROUP = KUEUE_API.partition("/")[0]
_HELM_RELEASE = ("meta.helm.sh/release-name", "meta.helm.sh/release-namespace")
_ROLE_OF_ACCOUNT = "eks.amazonaws.com/role-arn"
"""Annotation of a service account with its role, by IAM roles for service accounts."""

_NAMES_ONLY = ClusterFacts(
    file_system_id="fs-0",
    datasets_access_point="fsap-0",
    team_access_points={},
    database_host="database",
    database_port=0,
    database_secret_arn="",
    artifact_bucket="",
    registry="registry",
    account="account",
    api_server_cidrs=(),
)
"""Facts with which only the names of the platform's objects are right."""


def conflicts(
    settings: StackSettings,
    release: ReleaseManifest,
    cluster: FoundCluster,
    api: KubernetesApi,
    crds: Iterable[Manifest],
) -> Iterator[Answer]:
    """What the platform would fight with on an existing cluster.

    Args:
        settings: the environment.
        release: the pinned versions.
        cluster: what AWS says about the cluster.
        api: its API server.
        crds: its CRDs.

    Raises:
        ApiError: the API server refuses a request.
        ConnectionLostError: it does not answer.
    """
    namespaces = {one["metadata"]["name"]: one for one in api.items("v1", "Namespace")}
    foreign = [name for name in platform_namespaces(settings) if name in namespaces and not is_ours(namespaces[name])]
    for name in foreign:
        yield (
            f"namespace {name} exists and is not the platform's",
            "rename or delete it; for a namespace of a team, choose another name in teams",
        )
    ours = set(platform_namespaces(settings)) - set(foreign)
    yield from _objects(settings, release, api)
    running = [*api.items("apps/v1", "Deployment"), *api.items("apps/v1", "DaemonSet")]
    others = [one for one in running if one["metadata"]["namespace"] not in ours]
    yield from _operators(settings, others, release)
    yield from _daemons(settings, others, release)
    yield from _autoscalers(settings, others, release)
    yield from _addons(settings, release, cluster, running)
    yield from _drivers(settings, cluster, api)
    yield from _foreign_kueue(crds)


def is_ours(manifest: Manifest) -> bool:
    """Whether an object is one that the platform makes."""
    found = manifest["metadata"].get("labels") or {}
    return bool(found.get(PART_OF) == MANAGED_BY)


def _objects(settings: StackSettings, release: ReleaseManifest, api: KubernetesApi) -> Iterator[Answer]:
    """Objects outside the platform's namespaces: of the whole cluster, or in a namespace of Kubernetes."""
    inside = set(platform_namespaces(settings))
    facts = ClusterFacts(
        **{**vars(_NAMES_ONLY), "team_access_points": {team.name: "fsap-0" for team in settings.teams}}
    )
    for phase in platform_objects(settings, release, facts).values():
        for manifest in phase:
            metadata = manifest["metadata"]
            # What lacks the platform's label is another's by design: the roles of Kueue's chart that the platform completes.
            if manifest["kind"] == "Namespace" or metadata.get("namespace") in inside or not is_ours(manifest):
                continue
            found = api.read(manifest)
            if found is not None and not is_ours(found):
                where = f" in namespace {metadata['namespace']}" if "namespace" in metadata else ""
                yield (
                    f"{manifest['kind']} {metadata['name']}{where} exists and is not the platform's, which would take it over",
                    "rename or delete it",
                )


def _operators(settings: StackSettings, running: Sequence[Manifest], release: ReleaseManifest) -> Iterator[Answer]:
    remedy = "remove it, or use another cluster"
    for image, why in _installed(_OPERATORS, settings, release):
        for one in _with_image(running, image, release):
            if one["kind"] == "Deployment":
                yield f"{_named(one)} is an installation of {image} that is not the platform's: {why}", remedy
    for one in _from_repository(running, _GPU_OPERATOR) if settings.gpu_groups else ():
        yield f"{_named(one)} would install a driver and plugins of its own on the stack's GPU nodes", remedy


def _installed(
    reasons: Mapping[str, str], settings: StackSettings, release: ReleaseManifest
) -> Iterator[tuple[str, str]]:
    """Those of the images that the platform runs in this environment, with the reasons: others fight with nothing."""
    charts = installed_charts(settings)
    for image, why in reasons.items():
        if (release.images[image].chart or release.images[image].values_of) in charts:
            yield image, why


def _daemons(settings: StackSettings, running: Sequence[Manifest], release: ReleaseManifest) -> Iterator[Answer]:
    for image, why in _installed(_DAEMONS, settings, release):
        for one in _with_image(running, image, release):
            if one["kind"] == "DaemonSet" and not _avoids_our_nodes(one):
                yield (
                    f"{_named(one)} runs {image} on every node that it fits: on the stack's nodes, {why}",
                    f"give it a required node affinity with `{GROUP_LABEL}` DoesNotExist",
                )


def _autoscalers(settings: StackSettings, running: Sequence[Manifest], release: ReleaseManifest) -> Iterator[Answer]:
    """Another autoscaler that finds the groups of the whole cluster would find the stack's too, by the tags that EKS gives them."""
    ours, name = f"{STACK_TAG}={stack_tag(settings)}", cluster_name(settings)
    everywhere = {"k8s.io/cluster-autoscaler/enabled", f"k8s.io/cluster-autoscaler/{name}"}
    for one in _with_image(running, _AUTOSCALER, release):
        tags = _discovery_tags(one)
        if ours in tags:
            continue
        if one["metadata"]["name"] == _AUTOSCALER and one["metadata"]["namespace"] == "kube-system":
            yield f"{_named(one)} has the name of the platform's autoscaler", "install it under another name"
        if tags and {tag.partition("=")[0] for tag in tags} <= everywhere:
            yield (
                f"{_named(one)} scales every node group of the cluster, the stack's too",
                f"limit it to your own groups by another tag in {_DISCOVERY.rstrip('=')}",
            )


def _addons(
    settings: StackSettings, release: ReleaseManifest, cluster: FoundCluster, running: Sequence[Manifest]
) -> Iterator[Answer]:
    by_name = {
        (one["kind"], one["metadata"]["name"]): one for one in running if one["metadata"]["namespace"] == "kube-system"
    }
    for name in needed_addons(settings, release):
        if name not in cluster.addons and _WORKLOADS[name] not in by_name:
            yield (
                f"cluster {cluster.name} lacks {name}: no EKS add-on, and no {' '.join(_WORKLOADS[name])} in kube-system",
                f"add {name} to cluster.existing.addons, and the stack installs it",
            )
    cni = by_name.get(_WORKLOADS["vpc-cni"])
    if cni is not None and not settings.cluster.installs("vpc-cni"):
        yield from _cni(cni)


def _drivers(settings: StackSettings, cluster: FoundCluster, api: KubernetesApi) -> Iterator[Answer]:
    """The roles of storage drivers that are no EKS add-on, as `cluster_rules` compares those that are."""
    for driver, role in settings.cluster.foreign_drivers.items():
        if driver in cluster.addons:
            continue
        accounts = [
            api.read(api_object("v1", "ServiceAccount", account.name, namespace=account.namespace))
            for account in DRIVER_ACCOUNTS[driver]
        ]
        annotations = [one["metadata"].get("annotations") or {} for one in accounts if one is not None]
        found = {one[_ROLE_OF_ACCOUNT] for one in annotations if _ROLE_OF_ACCOUNT in one}
        found |= cluster.driver_roles.get(driver, frozenset())
        if role not in found:
            shown = ", ".join(sorted(found)) or "no role"
            yield (
                f"{driver} of cluster {cluster.name} has {shown}; cluster.existing.driver_roles says {role}",
                f"set cluster.existing.driver_roles.{driver} to the role of its pods, or give them that role",
            )


def _foreign_kueue(crds: Iterable[Manifest]) -> Iterator[Answer]:
    """Kueue's CRDs are templates of its chart, and Helm refuses to take over objects that it has not made."""
    found = [
        one["metadata"]["name"]
        for one in crds
        if one["spec"]["group"] == _KUEUE_GROUP and _helm_release(one) != (_KUEUE, KUEUE_NAMESPACE)
    ]
    if found:
        named = " ".join(sorted(found))
        yield (
            f"{len(found)} CRDs of Kueue are of another installation, for which Helm would refuse to install it: {named}",
            f"remove that installation with its CRDs, which deletes its queues: kubectl delete crd {named}",
        )


def _helm_release(one: Manifest) -> tuple[str, ...]:
    annotations = one["metadata"].get("annotations") or {}
    return tuple(annotations.get(key, "") for key in _HELM_RELEASE)


def _cni(cni: Manifest) -> Iterator[Answer]:
    """The VPC CNI isolates the teams, and gives nodes as many addresses as `network.pods_per_node` needs."""
    containers = cni["spec"]["template"]["spec"]["containers"]
    arguments = [argument for one in containers for argument in one.get("args") or ()]
    variables = {env["name"]: env.get("value") for one in containers for env in one.get("env") or ()}
    remedy = "aws eks update-addon --addon-name vpc-cni --configuration-values"
    if "--enable-network-policy=true" not in arguments:
        yield (
            "the VPC CNI enforces no NetworkPolicy, so teams would not be isolated from each other",
            f'{remedy} \'{{"enableNetworkPolicy": "true"}}\'',
        )
    if variables.get("ENABLE_PREFIX_DELEGATION") != "true":
        yield (
            "the VPC CNI assigns single addresses, too few for network.pods_per_node on many instance types",
            f'{remedy} \'{{"env": {{"ENABLE_PREFIX_DELEGATION": "true"}}}}\'',
        )


def _with_image(running: Sequence[Manifest], name: str, release: ReleaseManifest) -> Iterator[Manifest]:
    """Workloads with a container of an image of the release, in any version and from any registry or mirror."""
    return _from_repository(running, "/".join(release.images[name].repository.split("/")[-2:]))


def _from_repository(running: Sequence[Manifest], wanted: str) -> Iterator[Manifest]:
    for one in running:
        images = [container["image"] for container in one["spec"]["template"]["spec"]["containers"]]
        if any(_repository(image).endswith(f"/{wanted}") for image in images):
            yield one


def _repository(image: str) -> str:
    """A reference without tag and digest, after a slash."""
    path, _, last = image.partition("@")[0].rpartition("/")
    return f"/{path}/{last.partition(':')[0]}"


def _avoids_our_nodes(daemons: Manifest) -> bool:
    """Whether each term of its required node affinity excludes the stack's nodes."""
    spec: Any = daemons["spec"]["template"]["spec"]
    required = (
        (spec.get("affinity") or {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    )
    terms = (required or {}).get("nodeSelectorTerms", ())
    excluded = {"key": GROUP_LABEL, "operator": "DoesNotExist"}
    return bool(terms) and all(excluded in term.get("matchExpressions", ()) for term in terms)


def _discovery_tags(autoscaler: Manifest) -> frozenset[str]:
    containers = autoscaler["spec"]["template"]["spec"]["containers"]
    words = [word for one in containers for word in (*(one.get("command") or ()), *(one.get("args") or ()))]
    found = [word.removeprefix(_DISCOVERY) for word in words if word.startswith(_DISCOVERY)]
    return frozenset(tag for one in found for tag in one.split(","))


def _named(one: Manifest) -> str:
    return f"{one['kind']} {one['metadata']['namespace']}/{one['metadata']['name']}"
