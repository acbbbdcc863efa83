"""The profile `restricted` of the Pod Security Standards as far as the fields of our pods go (Kubernetes 1.35 docs)."""

from __future__ import annotations

from collections.abc import Iterator

from infra.spec.manifest import Manifest

_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}


def violations(pod: Manifest) -> list[str]:
    """Every field by which the admission would refuse the pod."""
    spec = pod["spec"]
    context = spec.get("securityContext", {})
    found = [f"spec.{key}" for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    found += [
        f"volume {volume['name']}: {set(volume) - {'name'}}"
        for volume in spec.get("volumes", [])
        if not set(volume) - {"name"} <= _VOLUMES
    ]
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        found += [f"{container['name']}.{rule}" for rule in _of_container(container, context)]
    return found


def _of_container(container: Manifest, pod_context: Manifest) -> Iterator[str]:
    context = container.get("securityContext", {})
    both = {**pod_context, **context}
    if context.get("allowPrivilegeEscalation") is not False:
        yield "allowPrivilegeEscalation"
    if context.get("privileged"):
        yield "privileged"
    capabilities = context.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []) or set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
        yield "capabilities"
    if both.get("runAsNonRoot") is not True:
        yield "runAsNonRoot"
    if both.get("runAsUser") == 0:
        yield "runAsUser"
    if both.get("seccompProfile", {}).get("type") not in {"RuntimeDefault", "Localhost"}:
        yield "seccompProfile"
    if any("hostPort" in port for port in container.get("ports", [])):
        yield "hostPort"
