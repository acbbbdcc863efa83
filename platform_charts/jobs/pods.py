"""Pod templates of a job: Ray's head, its workers and the submitter; the Pod Security Standard `restricted` admits all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.spec import cluster_names
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest, labels
from infra.spec.node_labels import EFA_RESOURCE, GPU_RESOURCE, HUGE_PAGES_RESOURCE
from infra.spec.outputs import TeamOutput
from platform_charts.jobs.code import PodCode
from platform_charts.jobs.drain import drain_head, drain_worker
from platform_charts.jobs.head_loss import submitter_probe
from platform_charts.jobs.nccl import network_environment
from platform_charts.jobs.placement import Placement
from platform_charts.jobs.price import JobPrice
from platform_charts.jobs.request import Target
from platform_charts.jobs.requests import with_requests
from platform_charts.jobs.resources import EFA_HUGE_PAGES_MIB, Share
from platform_charts.jobs.scheduling import JOB_LABEL, head_nodes, topology, worker_nodes

SETTINGS_FOLDER = "/etc/training"
SETTINGS_FILE = "settings.yaml"

_SPOT_GRACE_SECONDS = 100
"""Termination grace period on spot nodes, instead of the longest. AWS gives a spot node 120 s, of which draining its pods takes some."""

_TRAINER = {"serviceAccountName": cluster_names.TRAINER_ACCOUNT, "automountServiceAccountToken": False}
"""The team's account has an AWS role, by Pod Identity, and no use for the Kubernetes API."""

CONTAINER = {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True}
"""Security context of every container; /tmp, /dev/shm and the run's folder are writable."""

_CONTAINERS_OUTPUT = "/proc/1/fd/1"
"""Standard output of the container's first process, which the kubelet keeps: Ray gives its workers files of its own."""

CACHE_LIMIT_VARIABLE = "RTP_CACHE_GIB"
"""Environment variable with the size limit of the cache: the file system shows the free space of the whole node."""

TMP_MOUNT = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108  # a folder of our own container
_POD_LOCK = f"{TMP_MOUNT['mountPath']}/ranks.lock"


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """What all pods of a job or a cluster have in common.

    Attributes:
        name: name of the job or cluster.
        team: whose namespace and data they see.
        priority: class of the pods.
        target: the stack.
        settings: ConfigMap to mount at SETTINGS_FOLDER, or None.
        run_folder: folder of the run or search whose state is saved before a pod ends; None: there is none to wait for.
        image: reference of the image of every pod.
        code: code of a user's own; None without.
        takes_requests: whether the workers see what members of the team ask of the run.
    """

    name: str
    team: TeamOutput
    priority: cluster_names.Priority
    target: Target
    settings: str | None
    run_folder: str | None
    image: str
    code: PodCode | None = None
    takes_requests: bool = False

    @property
    def has_lustre(self) -> bool:
        """Whether the stack has an FSx for Lustre file system."""
        return self.target.outputs.storage.lustre_id is not None

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the objects."""
        common = labels("ray", version=self.target.release.platform, team=self.team.name)
        return {**common, JOB_LABEL: self.name}

    @property
    def ray_labels(self) -> dict[str, str]:
        """Labels of Ray's pods, without the name: the services that KubeRay makes select the head by it."""
        return {key: value for key, value in self.labels.items() if key != "app.kubernetes.io/name"}


HEAD_CPUS = 1
"""Cores that a head requests: it rarely needs its limit."""


def head(workspace: Workspace, placement: Placement, *, share: Share, price: JobPrice | None) -> Manifest:
    """Template of the head, which drives the run but holds no rank of it, on the head nodes.

    Args:
        workspace: what all pods have in common.
        placement: where the workers are.
        share: limits of Ray's container, which requests `HEAD_CPUS` only.
        price: of the job's parts of nodes, for the cost of its run; None if it is not known.
    """
    grace = _grace_seconds(placement)
    container = {
        "name": "ray-head",
        **_ray_container(
            workspace,
            {**_environment(workspace), **_priced(price)},
            resources_of(share, requests={"cpu": str(HEAD_CPUS)}),
        ),
        "ports": [{"name": name, "containerPort": port} for name, port in cluster_names.RAY_PORTS.items()],
        **_lifecycle(drain_head(workspace.run_folder, grace_seconds=grace)),
    }
    return _ray_template(
        workspace,
        container,
        share=share,
        grace_seconds=grace,
        scheduling=head_nodes(),
        annotations={},
        eviction=cluster_names.NO_EVICTION,
    )


def _priced(price: JobPrice | None) -> dict[str, str]:
    """What tells a driver the price of its job."""
    if price is None:
        return {}
    fixed = {cluster_names.PRICE_VARIABLE: f"{price.fixed:.6g}"}
    return {**fixed, cluster_names.WORKER_PRICE_VARIABLE: f"{price.per_worker:.6g}"} if price.per_worker else fixed


def worker(workspace: Workspace, placement: Placement) -> Manifest:
    """Template of a worker: the ranks of one node, or a part of it."""
    grace = _grace_seconds(placement)
    network = network_environment(placement, catalog=workspace.target.catalog)
    pod = {"RTP_POD_LOG": _CONTAINERS_OUTPUT, cluster_names.POD_LOCK_VARIABLE: _POD_LOCK}
    environment = {**_environment(workspace), **network, **pod}
    drain = drain_worker(
        workspace.run_folder, pod_lock=_POD_LOCK, grace_seconds=grace, leaves_at_once=bool(placement.sizes)
    )
    container = {
        "name": "ray-worker",
        **_ray_container(workspace, environment, worker_resources(placement)),
        "ports": [{"name": "metrics", "containerPort": cluster_names.RAY_PORTS["metrics"]}],
        **_lifecycle(drain),
    }
    template = _ray_template(
        workspace,
        container,
        share=placement.share,
        grace_seconds=grace,
        scheduling=worker_nodes(workspace.name, placement),
        # EC2 ends such a node in any case: an eviction gives the pod time to save, refusing it would not keep the node.
        annotations=topology(placement),
        eviction={} if placement.is_fleeting else cluster_names.NO_EVICTION,
    )
    if workspace.takes_requests:
        template = with_requests(template, workspace.name)
    return _with_cache(template, placement.cache_gib) if placement.cache_gib else template


def submitter(workspace: Workspace) -> Manifest:
    """Template of the pod that submits the job to Ray and follows its log; KubeRay fills in the command.

    It runs as the namespace's default account: it needs no AWS role, which `trainer` has.
    """
    container = {
        "name": "ray-job-submitter",
        "image": workspace.image,
        "env": _env({"HOME": "/tmp"}),  # noqa: S108
        "resources": resources_of(Share(1, 1), requests={"cpu": "100m", "memory": "512Mi"}),
        "livenessProbe": submitter_probe(),
        "securityContext": CONTAINER,
        "volumeMounts": [TMP_MOUNT],
    }
    return {
        "metadata": {"labels": {**workspace.labels, **cluster_names.NO_EVICTION}},
        "spec": {
            **_pod(workspace),
            **head_nodes(),
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "containers": [container],
            "volumes": [_tmp_volume()],
        },
    }


def resources_of(limits: Share, *, requests: Mapping[str, str] | None = None) -> Manifest:
    """Resources whose requests equal their limits, except for those in `requests`."""
    quantities = {"cpu": str(limits.cpus), "memory": f"{limits.memory_gib}Gi"}
    return {"requests": {**quantities, **(requests or {})}, "limits": quantities}


def worker_resources(placement: Placement) -> Manifest:
    """Resources of a worker, of the class Guaranteed: a neighbour that slows one rank slows all of them."""
    devices = {}
    if placement.gpus:
        devices[GPU_RESOURCE] = str(placement.gpus)
    if placement.efa:
        devices[EFA_RESOURCE] = str(placement.efa)
        devices[HUGE_PAGES_RESOURCE] = f"{EFA_HUGE_PAGES_MIB}Mi"
    return {kind: {**values, **devices} for kind, values in resources_of(placement.share).items()}


def _pod(workspace: Workspace) -> Manifest:
    return {
        "enableServiceLinks": False,
        "priorityClassName": cluster_names.priority_class(workspace.priority),
        "securityContext": dict(RESTRICTED_POD),
    }


def _ray_template(
    workspace: Workspace,
    container: Manifest,
    *,
    share: Share,
    grace_seconds: int,
    scheduling: Manifest,
    eviction: Mapping[str, str],
    annotations: Mapping[str, str],
) -> Manifest:
    return {
        "metadata": {
            "labels": {**workspace.ray_labels, **eviction},
            # Otherwise the cluster-autoscaler evicts pods to remove a node, and ends the run.
            "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", **annotations},
        },
        "spec": {
            **_pod(workspace),
            **scheduling,
            **_TRAINER,
            "terminationGracePeriodSeconds": grace_seconds,
            **_init_containers(workspace),
            "containers": [container],
            "volumes": _volumes(workspace, share),
        },
    }


def _init_containers(workspace: Workspace) -> Manifest:
    found = workspace.code.init_containers() if workspace.code else []
    common = {"image": workspace.image, "securityContext": CONTAINER}
    return {"initContainers": [{**common, **one} for one in found]} if found else {}


def _ray_container(workspace: Workspace, environment: Mapping[str, str], resources: Manifest) -> Manifest:
    return {
        "image": workspace.image,
        "env": _env(environment),
        "envFrom": [{"secretRef": {"name": cluster_names.MLFLOW_CREDENTIALS, "optional": False}}],
        "resources": resources,
        "securityContext": CONTAINER,
        "volumeMounts": _mounts(workspace),
    }


def _environment(workspace: Workspace) -> dict[str, str]:
    outputs = workspace.target.outputs
    return {
        **(workspace.code.environment() if workspace.code else {}),
        "HOME": "/tmp",  # noqa: S108  # the only writable folder of the container
        "PYTHONUNBUFFERED": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        # On a node whose disk still loads the image, an agent may need more than the 15 s after which its raylet aborts (Ray 2.60,
        # port_persistence.h; no setting changes them). This is how long `ray start` then waits in vain before its container starts
        # again, with the files in memory. The default of 30 is too short for a start that is merely slow.
        "RAY_raylet_start_wait_time_s": "60",
        "AWS_REGION": outputs.region,
        "MLFLOW_TRACKING_URI": outputs.mlflow_uri,
        # The cluster decides these two: settings written for another machine must not override them.
        "RTP_TRACKING_URI": outputs.mlflow_uri,
        "RTP_RUN_DIRECTORY": cluster_names.RUNS_PATH,
    }


def _env(variables: Mapping[str, str]) -> list[Manifest]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def _mounts(workspace: Workspace) -> list[Manifest]:
    mounts: list[Manifest] = [
        TMP_MOUNT,
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
        {"name": "datasets", "mountPath": cluster_names.DATASETS_PATH, "readOnly": True},
        {"name": "runs", "mountPath": cluster_names.RUNS_PATH},
    ]
    if workspace.has_lustre:
        mounts.append({"name": "lustre", "mountPath": cluster_names.LUSTRE_PATH, "readOnly": True})
    if workspace.code is not None:
        mounts.extend(workspace.code.mounts())
    if workspace.settings is not None:
        mounts.append({"name": "settings", "mountPath": SETTINGS_FOLDER, "readOnly": True})
    return mounts


def _volumes(workspace: Workspace, share: Share) -> list[Manifest]:
    # Half the memory: Ray's objects, the loaders' batches and NCCL's buffers are there, and count against the pod.
    volumes: list[Manifest] = [
        _tmp_volume(),
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{share.memory_gib * 512}Mi"}},
        {"name": "datasets", "persistentVolumeClaim": {"claimName": cluster_names.DATASETS_CLAIM, "readOnly": True}},
        {"name": "runs", "persistentVolumeClaim": {"claimName": cluster_names.RUNS_CLAIM}},
    ]
    if workspace.has_lustre:
        claim = {"claimName": cluster_names.LUSTRE_CLAIM, "readOnly": True}
        volumes.append({"name": "lustre", "persistentVolumeClaim": claim})
    if workspace.settings is not None:
        volumes.append({"name": "settings", "configMap": {"name": workspace.settings}})
    if workspace.code is not None:
        volumes.extend(workspace.code.volumes())
    return volumes


def _tmp_volume() -> Manifest:
    return {"name": "tmp", "emptyDir": {"sizeLimit": f"{cluster_names.TMP_GIB}Gi"}}


def _with_cache(template: Manifest, gib: int) -> Manifest:
    """A template with the job's part of the node's NVMe disks, which hold the kubelet's folder (nodeadm, local storage RAID0)."""
    spec = template["spec"]
    (container,) = spec["containers"]
    cached = {
        **container,
        "env": [*container["env"], *_env({CACHE_LIMIT_VARIABLE: str(gib)})],
        "volumeMounts": [*container["volumeMounts"], {"name": "cache", "mountPath": cluster_names.CACHE_PATH}],
    }
    volume = {"name": "cache", "emptyDir": {"sizeLimit": f"{gib}Gi"}}
    return {**template, "spec": {**spec, "containers": [cached], "volumes": [*spec["volumes"], volume]}}


def _grace_seconds(placement: Placement) -> int:
    return _SPOT_GRACE_SECONDS if placement.is_interruptible else cluster_names.LONGEST_GRACE_SECONDS


def _lifecycle(script: str | None) -> Manifest:
    if script is None:
        return {}
    return {"lifecycle": {"preStop": {"exec": {"command": ["/bin/bash", "-c", script]}}}}
