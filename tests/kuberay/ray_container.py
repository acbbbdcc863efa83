"""Ray's own container as KubeRay 1.6 completes it: command, environment, ports and probes."""

from __future__ import annotations

import copy
from typing import Literal

from infra.spec.manifest import Manifest
from tests.kuberay.cluster import SHELL, VERSION, Cluster, field_value, label_value, token_environment

NodeType = Literal["head", "worker"]

_METRICS_PORT = 8080
_AGENT_PORT = 52365
_FACTORS = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_EXPLICIT_FLAGS = frozenset({"log-color", "include-dashboard", "include-log-monitor"})
"""Flags of `ray start` that take true or false as a value; all others are switches."""


def ray_container_of(
    cluster: Cluster, template: Manifest, parameters: dict[str, str], *, node_type: NodeType
) -> Manifest:
    """The container that runs Ray, from the first one of the template.

    Args:
        cluster: the cluster.
        template: the container as it was written.
        parameters: flags of `ray start` as they were written.
        node_type: what the pod is.
    """
    container = copy.deepcopy(template)
    start = _start_command(cluster, parameters, container, node_type)
    # The template's own command runs before Ray.
    before = " ".join([*container.get("command", ()), *container.get("args", ())])
    limit = f"ulimit -n 65536; {start}"
    container["command"] = SHELL
    container["args"] = [f"{before} && {limit}" if before else limit]
    container["env"] = [*container.get("env", ()), *_environment(cluster, start, node_type)]
    ports = container.setdefault("ports", [])
    if all(port["name"] != "metrics" for port in ports):
        ports.append({"name": "metrics", "containerPort": _METRICS_PORT})
    container.setdefault("livenessProbe", _probe(node_type, delay=30, failures=120))
    container.setdefault("readinessProbe", _probe(node_type, delay=10, failures=10))
    return container


def wait_for_gcs(cluster: Cluster, template: Manifest) -> Manifest:
    """The init container that waits for the head; it has Ray's image, security context, env and mounts, but not `envFrom`."""
    container: Manifest = {
        key: copy.deepcopy(template[key])
        for key in ("image", "imagePullPolicy", "securityContext", "volumeMounts")
        if key in template
    }
    resources = {"cpu": "200m", "memory": "256Mi"}
    address = f"{cluster.head_host}:{cluster.gcs_port}"
    return {
        "name": "wait-gcs-ready",
        **container,
        "command": SHELL,
        "args": [f"until ray health-check --address {address}; do sleep 5; done"],
        "env": [
            *copy.deepcopy(template.get("env", [])),
            *token_environment(cluster),
            *head_environment(cluster),
        ],
        "resources": {"limits": resources, "requests": resources},
    }


def head_environment(cluster: Cluster) -> list[Manifest]:
    """The address of the head, as KubeRay tells it to every init container."""
    return _values({"FQ_RAY_IP": cluster.head_host, "RAY_IP": cluster.head_service})


def _start_command(cluster: Cluster, parameters: dict[str, str], container: Manifest, node_type: NodeType) -> str:
    """`ray start` with its flags in alphabetical order."""
    limits = container.get("resources", {}).get("limits", {})
    requests = container.get("resources", {}).get("requests", {})
    found = {"metrics-export-port": str(_METRICS_PORT), "dashboard-agent-listen-port": str(_AGENT_PORT)}
    found |= {"address": f"{cluster.head_host}:{cluster.gcs_port}"} if node_type == "worker" else {}
    found |= {"dashboard-host": "0.0.0.0"} if node_type == "head" else {}  # noqa: S104
    if "cpu" in limits or "cpu" in requests:
        found["num-cpus"] = str(_whole_cores(limits.get("cpu") or requests["cpu"]))
    if "memory" in limits:
        found["memory"] = str(_bytes(limits["memory"]))
    if "nvidia.com/gpu" in limits:
        found["num-gpus"] = str(limits["nvidia.com/gpu"])
    flags = (_flag(name, value) for name, value in sorted({**found, **parameters, "block": "true"}.items()))
    head = "--head " if node_type == "head" else ""
    return f"ray start {head}{''.join(flags)}"


def _flag(name: str, value: str) -> str:
    if value.lower() not in {"true", "false"} or name in _EXPLICIT_FLAGS:
        return f" --{name}={value} "
    return f" --{name} " if value.lower() == "true" else ""


def _environment(cluster: Cluster, start: str, node_type: NodeType) -> list[Manifest]:
    is_head = node_type == "head"
    host = "127.0.0.1" if is_head else cluster.head_host
    tags = f"kuberay_version=v{VERSION};kuberay_crd={cluster.crd}"
    address = {"FQ_RAY_IP": cluster.head_host, "RAY_IP": cluster.head_service} if not is_head else {}
    fixed = {
        "KUBERAY_GEN_RAY_START_CMD": start,
        "RAY_PORT": cluster.gcs_port,
        "RAY_ADDRESS": f"{host}:{cluster.gcs_port}",
        "RAY_USAGE_STATS_KUBERAY_IN_USE": "1",
        **({"RAY_USAGE_STATS_EXTRA_TAGS": tags} if is_head else {}),
        "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE": "1",
    }
    return [
        *token_environment(cluster),
        *_values(address),
        label_value("RAY_CLUSTER_NAME", "ray.io/cluster"),
        field_value("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
        field_value("RAY_CLOUD_INSTANCE_ID", "metadata.name"),
        label_value("RAY_NODE_TYPE_NAME", "ray.io/group"),
        *_values(fixed),
    ]


def _values(variables: dict[str, str]) -> list[Manifest]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def _probe(node_type: NodeType, *, delay: int, failures: int) -> Manifest:
    """Since Ray 2.53 one endpoint reports the health of everything on a node."""
    return {
        "httpGet": {"path": "/api/healthz", "port": _AGENT_PORT},
        "initialDelaySeconds": delay,
        "timeoutSeconds": 5 if node_type == "head" else 2,
        "periodSeconds": 5,
        "successThreshold": 1,
        "failureThreshold": failures,
    }


def _whole_cores(quantity: str) -> int:
    """Cores, rounded up as Kubernetes rounds a quantity."""
    return -(-int(quantity[:-1]) // 1000) if quantity.endswith("m") else int(quantity)


def _bytes(quantity: str) -> int:
    """Bytes of a memory quantity in the units that our templates use."""
    digits = quantity.rstrip("KMGTi")
    return int(digits) * _FACTORS[quantity[len(digits) :]]
