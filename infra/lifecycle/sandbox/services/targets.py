"""The ports of pods as targets of Prometheus, as its own discovery finds them (Prometheus, "kubernetes_sd_config", role `pod`).

Debian builds Prometheus without that discovery, so it reads the targets from a file (`file_sd_config`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from infra.spec.manifest import Manifest

_PREFIX = "__meta_kubernetes_"


def meta_name(name: str) -> str:
    """The name of a pod's label or annotation within the name of a label of Prometheus."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def pod_targets(pods: Iterable[Manifest]) -> list[Manifest]:
    """A target group for each port of each pod that has an address."""
    return [target for pod in pods if pod["status"].get("podIP") for target in _of_pod(pod)]


def _of_pod(pod: Manifest) -> Iterator[Manifest]:
    shared, address = dict(_labels(pod)), pod["status"]["podIP"]
    for is_init, field in ((False, "containers"), (True, "initContainers")):
        for container in pod["spec"].get(field, []):
            of_container = {
                f"{_PREFIX}pod_container_name": container["name"],
                f"{_PREFIX}pod_container_image": container["image"],
                f"{_PREFIX}pod_container_init": str(is_init).lower(),
            }
            if not container.get("ports"):
                yield {"targets": [address], "labels": {**shared, **of_container}}
            for port in container.get("ports", []):
                labels = {**shared, **of_container, **dict(_of_port(port))}
                yield {"targets": [f"{address}:{port['containerPort']}"], "labels": labels}


def _of_port(port: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in (
        ("name", port.get("name", "")),
        ("number", port["containerPort"]),
        ("protocol", port.get("protocol", "TCP")),
    ):
        yield f"{_PREFIX}pod_container_port_{name}", str(value)


def _labels(pod: Manifest) -> Iterator[tuple[str, str]]:
    metadata, status = pod["metadata"], pod["status"]
    yield f"{_PREFIX}namespace", metadata["namespace"]
    conditions = {one["type"]: one["status"].lower() for one in status.get("conditions", [])}
    for name, value in (
        ("name", metadata["name"]),
        ("uid", metadata["uid"]),
        ("ip", status["podIP"]),
        ("host_ip", status.get("hostIP", "")),
        ("node_name", pod["spec"].get("nodeName", "")),
        ("phase", status.get("phase", "")),
        ("ready", conditions.get("Ready", "unknown")),
    ):
        yield f"{_PREFIX}pod_{name}", value
    for kind in ("label", "annotation"):
        for name, value in metadata.get(f"{kind}s", {}).items():
            yield f"{_PREFIX}pod_{kind}_{meta_name(name)}", value
            yield f"{_PREFIX}pod_{kind}present_{meta_name(name)}", "true"
