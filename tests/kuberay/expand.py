"""The pods that KubeRay 1.6 makes of a RayJob or RayCluster, for checks that do not look inside custom resources.

Follows the operator with its default options and feature gates (ray-operator/controllers/ray: common/pod.go,
common/job.go, rayjob_controller.go at v1.6.2). The operator's pods differ in the random suffix of each name, owner
references, two annotations (a hash and the operator's version), two labels with the id of the submitter's Job, and the
text of the two scripts that wait for the head and submit the job, which are shorter here and do the same.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from infra.spec.manifest import Manifest
from tests.kuberay.cluster import Cluster, pod_prefix
from tests.kuberay.ray_container import head_environment, ray_container_of, wait_for_gcs
from tests.kuberay.sidecars import submitter_container

_UNKNOWN = (
    "enableInTreeAutoscaling",
    "gcsFaultToleranceOptions",
    "historyServerOptions",
    "networkPolicy",
    "tlsOptions",
)
"""Fields of a RayCluster that change its pods, and that none of our manifests has."""


def expand(manifest: Manifest) -> tuple[Manifest, ...]:
    """The pods of head and workers, and of a RayJob's submitter, with init containers and sidecars.

    Raises:
        ValueError: the manifest is neither a RayJob nor a RayCluster, or has a field that is not supported here.
    """
    kind = manifest.get("kind")
    if kind == "RayCluster":
        return tuple(_cluster_pods(_cluster(manifest, name=manifest["metadata"]["name"], spec=manifest["spec"])))
    if kind != "RayJob":
        raise ValueError(f"kind={kind}: KubeRay makes pods of a RayJob or a RayCluster only")
    spec = manifest["spec"]
    if spec.get("submissionMode", "K8sJobMode") != "K8sJobMode":
        raise ValueError(f"submissionMode={spec['submissionMode']} is not supported here, only K8sJobMode")
    cluster = _cluster(manifest, name=f"{manifest['metadata']['name']}-00000", spec=spec["rayClusterSpec"])
    return (*_cluster_pods(cluster), _submitter_pod(manifest, cluster))


def _cluster(manifest: Manifest, *, name: str, spec: Manifest) -> Cluster:
    unknown = [key for key in _UNKNOWN if key in spec]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: not supported here, and it changes the pods")
    return Cluster(name=name, namespace=manifest["metadata"]["namespace"], crd=manifest["kind"], spec=spec)


def _cluster_pods(cluster: Cluster) -> Iterator[Manifest]:
    yield _head_pod(cluster)
    for group in cluster.spec.get("workerGroupSpecs", ()):
        for index in range(_replicas(group)):
            yield _worker_pod(cluster, group, index)


def _replicas(group: Manifest) -> int:
    wanted: int = min(max(group.get("replicas", 0), group.get("minReplicas", 0)), group.get("maxReplicas", 2**31 - 1))
    return wanted


def _head_pod(cluster: Cluster) -> Manifest:
    group = cluster.spec["headGroupSpec"]
    pod = _pod(cluster, group["template"], node_type="head", group_name="headgroup")
    pod["metadata"]["name"] = f"{pod_prefix(cluster.name, 'head')}00000"
    pod["metadata"].setdefault("annotations", {})["ray.io/ft-enabled"] = "false"
    spec = pod["spec"]
    parameters = dict(group.get("rayStartParams", {}))
    _tell_the_head(cluster, spec)
    spec["containers"][0] = ray_container_of(cluster, spec["containers"][0], parameters, node_type="head")
    _add_shared_memory(spec)
    return pod


def _worker_pod(cluster: Cluster, group: Manifest, index: int) -> Manifest:
    pod = _pod(cluster, group["template"], node_type="worker", group_name=group["groupName"])
    prefix = pod_prefix(f"{cluster.name}-{group['groupName']}", "worker")
    pod["metadata"]["name"] = f"{prefix}{index:05d}"
    pod["metadata"]["labels"]["ray.io/worker-group-replica-index"] = str(index)
    spec = pod["spec"]
    template = spec["containers"][0]
    _tell_the_head(cluster, spec)
    spec.setdefault("initContainers", []).append(wait_for_gcs(cluster, template))
    parameters = dict(group.get("rayStartParams", {}))
    spec["containers"][0] = ray_container_of(cluster, template, parameters, node_type="worker")
    _add_shared_memory(spec)
    return pod


def _pod(cluster: Cluster, template: Manifest, *, node_type: str, group_name: str) -> Manifest:
    metadata: dict[str, Any] = copy.deepcopy(template.get("metadata", {}))
    given = metadata.get("labels", {})
    fixed = {"ray.io/cluster": cluster.name, "ray.io/node-type": node_type, "ray.io/group": group_name}
    metadata["labels"] = {
        "ray.io/is-ray-node": "yes",
        "ray.io/identifier": f"{cluster.name}-{node_type}"[-63:],
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
        **given,
        **fixed,
    }
    metadata["namespace"] = cluster.namespace
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": copy.deepcopy(template["spec"])}


def _tell_the_head(cluster: Cluster, spec: Manifest) -> None:
    """Adds the head's address to the environment of the template's init containers."""
    for container in spec.get("initContainers", ()):
        container.setdefault("env", []).extend(head_environment(cluster))


def _add_shared_memory(spec: Manifest) -> None:
    """Mounts /dev/shm of the size of the container's memory limit where the template has no such mount."""
    container = spec["containers"][0]
    mounts = container.setdefault("volumeMounts", [])
    if any(mount["mountPath"] == "/dev/shm" for mount in mounts):
        return
    size = container.get("resources", {}).get("limits", {}).get("memory")
    medium = {"medium": "Memory", **({"sizeLimit": size} if size else {})}
    spec.setdefault("volumes", []).append({"name": "shared-mem", "emptyDir": medium})
    mounts.append({"name": "shared-mem", "mountPath": "/dev/shm"})


def _submitter_pod(manifest: Manifest, cluster: Cluster) -> Manifest:
    """The pod of the Job that KubeRay makes under the RayJob's name, with the labels the Job's controller adds."""
    name, namespace = manifest["metadata"]["name"], cluster.namespace
    template = copy.deepcopy(manifest["spec"]["submitterPodTemplate"])
    labels = template.get("metadata", {}).get("labels", {})
    spec = template["spec"]
    spec["containers"][0] = submitter_container(manifest, cluster, spec["containers"][0])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-00000",
            "namespace": namespace,
            "labels": {**labels, "batch.kubernetes.io/job-name": name, "job-name": name},
        },
        "spec": spec,
    }
