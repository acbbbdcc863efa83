"""Pod templates of a job: Ray's head, its workers and the submitter; the Pod Security Standard `restricted` admits all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.spec import cluster_names
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest, labels
from infra.spec.node_labels import EFA_RESOURCE, GPU_RESOURCE, HUGE_PAGES_RESOURCE
from infra.spec.outputs import TeamOutput
from platform_charts.jobs.drain import drain_head, drain_worker
from platform_charts.jobs.nccl import network_environment
from platform_charts.jobs.placement import Placement
from platform_charts.jobs.request import Target
from platform_charts.jobs.resources import EFA_HUGE_PAGES_MIB, Share
from platform_charts.jobs.scheduling import JOB_LABEL, system_nodes, worker_nodes

SETTINGS_FOLDER = "/etc/training"
SETTINGS_FILE = "settings.yaml"

_SPOT_GRACE_SECONDS = 100
_GRACE_SECONDS = 300
"""Termination grace period. AWS gives a spot node 120 s, of which draining its pods takes some."""

_TMP_LIMIT = "20Gi"

_TRAINER = {"serviceAccountName": cluster_names.TRAINER_ACCOUNT, "automountServiceAccountToken": False}
"""The team's account has an AWS role, by Pod Identity, and no use for the Kubernetes API."""

CONTAINER = {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True}
"""Security context of every container; /tmp, /dev/shm and the run's folder are writable."""

_CONTAINERS_OUTPUT = "/proc/1/fd/1"
"""Standard output of the container's first process, which the kubelet keeps: Ray gives its workers files of its own."""

TMP_MOUNT = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108  # a folder of our own container


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """What all pods of a job or a cluster have in common.

    Attributes:
        name: name of the job or cluster.
        team: whose namespace and data they see.
        priority: class of the pods.
        target: the stack.
        settings: ConfigMap to mount at SETTINGS_FOLDER, or None.
        run: run whose state is saved before a pod ends; None: there is none to wait for.
    """

    name: str
    team: TeamOutput
    priority: cluster_names.Priority
    target: Target
    settings: str | None
    run: str | None

    @property
    def image(self) -> str:
        """Reference of the trainer image: in the stack's registry, by digest where it is known."""
        return self.target.release.images["trainer"].reference_in(self.target.outputs.registries["trainer"])

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the objects."""
        common = labels("ray", version=self.target.release.platform, team=self.team.name)
        return {**common, JOB_LABEL: self.name}

    @property
    def ray_labels(self) -> dict[str, str]:
        """Labels of Ray's pods, without the name: the services that KubeRay makes select the head by it."""
        return {key: value for key, value in self.labels.items() if key != "app.kubernetes.io/name"}


def head(workspace: Workspace, placement: Placement, *, share: Share, is_scaling: bool) -> Manifest:
    """Template of the head, which drives the run but holds no rank of it, on the system nodes.

    Args:
        workspace: what all pods have in common.
        placement: where the workers are.
        share: limits of Ray's container. It needs them rarely, so it requests one core.
        is_scaling: Ray's autoscaler runs in this pod and changes the cluster. The pod then has the service account that
            KubeRay makes for it, so that `trainer`, the account of all other pods, does not need that right.
    """
    grace = _grace_seconds(placement)
    container = {
        "name": "ray-head",
        **_ray_container(workspace, _environment(workspace), resources_of(share, requests={"cpu": "1"})),
        "ports": [{"name": name, "containerPort": port} for name, port in cluster_names.RAY_PORTS.items()],
        **_lifecycle(drain_head(_run_folder(workspace), grace_seconds=grace)),
    }
    return _ray_template(
        workspace,
        container,
        share=share,
        grace_seconds=grace,
        scheduling=system_nodes(),
        account={} if is_scaling else _TRAINER,
    )


def worker(workspace: Workspace, placement: Placement) -> Manifest:
    """Template of a worker: the ranks of one node, or a part of it."""
    grace = _grace_seconds(placement)
    network = network_environment(placement, catalog=workspace.target.catalog)
    environment = {**_environment(workspace), **network, "RTP_POD_LOG": _CONTAINERS_OUTPUT}
    container = {
        "name": "ray-worker",
        **_ray_container(workspace, environment, worker_resources(placement)),
        "ports": [{"name": "metrics", "containerPort": cluster_names.RAY_PORTS["metrics"]}],
        **_lifecycle(drain_worker(_run_folder(workspace), grace_seconds=grace)),
    }
    return _ray_template(
        workspace,
        container,
        share=placement.share,
        grace_seconds=grace,
        scheduling=worker_nodes(workspace.name, placement),
        account=_TRAINER,
    )


def submitter(workspace: Workspace) -> Manifest:
    """Template of the pod that submits the job to Ray and follows its log; KubeRay fills in the command.

    It runs as the namespace's default account: it needs no AWS role, which `trainer` has.
    """
    container = {
        "name": "ray-job-submitter",
        "image": workspace.image,
        "env": _env({"HOME": "/tmp"}),  # noqa: S108
        "resources": resources_of(Share(1, 1), requests={"cpu": "100m", "memory": "512Mi"}),
        "securityContext": CONTAINER,
        "volumeMounts": [TMP_MOUNT],
    }
    return {
        "metadata": {"labels": workspace.labels},
        "spec": {
            **_pod(workspace),
            **system_nodes(),
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
    account: Manifest,
) -> Manifest:
    return {
        "metadata": {
            "labels": workspace.ray_labels,
            # Otherwise the cluster-autoscaler evicts pods to remove a node, and ends the run.
            "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
        },
        "spec": {
            **_pod(workspace),
            **scheduling,
            **account,
            "terminationGracePeriodSeconds": grace_seconds,
            "containers": [container],
            "volumes": _volumes(workspace, share),
        },
    }


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
        "HOME": "/tmp",  # noqa: S108  # the only writable folder of the container
        "PYTHONUNBUFFERED": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Seconds; the default of 30 fails on a node whose disk still loads the image.
        "RAY_raylet_start_wait_time_s": "120",
        "AWS_REGION": outputs.region,
        "MLFLOW_TRACKING_URI": outputs.mlflow_uri,
        # The cluster decides these two: settings written for another machine must not override them.
        "RTP_TRACKING_URI": outputs.mlflow_uri,
        "RTP_RUN_DIRECTORY": cluster_names.RUNS_PATH,
    }


def _env(variables: Mapping[str, str]) -> list[Manifest]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def _mounts(workspace: Workspace) -> list[Manifest]:
    shared: list[Manifest] = [
        TMP_MOUNT,
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
        {"name": "datasets", "mountPath": cluster_names.DATASETS_PATH, "readOnly": True},
        {"name": "runs", "mountPath": cluster_names.RUNS_PATH},
    ]
    if workspace.settings is None:
        return shared
    return [*shared, {"name": "settings", "mountPath": SETTINGS_FOLDER, "readOnly": True}]


def _volumes(workspace: Workspace, share: Share) -> list[Manifest]:
    # Half the memory: Ray's objects, the loaders' batches and NCCL's buffers are there, and count against the pod.
    shared: list[Manifest] = [
        _tmp_volume(),
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{share.memory_gib * 512}Mi"}},
        {"name": "datasets", "persistentVolumeClaim": {"claimName": cluster_names.DATASETS_CLAIM, "readOnly": True}},
        {"name": "runs", "persistentVolumeClaim": {"claimName": cluster_names.RUNS_CLAIM}},
    ]
    if workspace.settings is None:
        return shared
    return [*shared, {"name": "settings", "configMap": {"name": workspace.settings}}]


def _tmp_volume() -> Manifest:
    return {"name": "tmp", "emptyDir": {"sizeLimit": _TMP_LIMIT}}


def _run_folder(workspace: Workspace) -> str | None:
    return None if workspace.run is None else f"{cluster_names.RUNS_PATH}/{workspace.run}"


def _grace_seconds(placement: Placement) -> int:
    return _SPOT_GRACE_SECONDS if placement.is_interruptible else _GRACE_SECONDS


def _lifecycle(script: str | None) -> Manifest:
    if script is None:
        return {}
    return {"lifecycle": {"preStop": {"exec": {"command": ["/bin/bash", "-c", script]}}}}
