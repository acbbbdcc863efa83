"""Adds what enforces NetworkPolicies to a node: the enforcer, and the CNI plugin that waits for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from pathlib import Path

from infra.lifecycle.sandbox.layout import API_SERVICE
from infra.lifecycle.sandbox.node.addresses import Addresses
from infra.lifecycle.sandbox.node.machine import Machine
from infra.lifecycle.sandbox.node.policies import plugin
from infra.lifecycle.sandbox.node.policies.enforcer import Settings
from infra.lifecycle.sandbox.node.policies.register import Register
from infra.lifecycle.sandbox.node.policies.rules import first_input
from infra.lifecycle.sandbox.node.request import RealNode
from infra.spec.cluster_names import KUBERAY_NAMESPACE, KUEUE_NAMESPACE, MONITORING_NAMESPACE
from infra.spec.manifest import Manifest

USER = "sandbox:network-policies"
"""User of the API server."""

PROCESSES: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("kube-system", {"k8s-app": "kube-dns"}),
    (KUBERAY_NAMESPACE, {}),
    (KUEUE_NAMESPACE, {}),
    (MONITORING_NAMESPACE, {"app.kubernetes.io/name": "prometheus"}),
)
"""Namespace and labels, on EKS, of what runs as a process beside the nodes. All have one address, so that one may do on its ports what
the policies allow another."""


def close(machine: Machine, pods: IPv4Network, *, restore: Path) -> None:
    """Deny everything to pods of a node until the enforcer knows them; before any can start.

    Args:
        machine: the node.
        pods: addresses of its pods.
        restore: path of iptables-restore.

    Raises:
        PlatformError: the rules were not written.
    """
    first = machine.folder / "first-rules"
    first.write_text(first_input(pods), encoding="utf-8")
    machine.do(restore, "--noflush", first)


def plugins(machine: Machine, found: Path) -> Path:
    """A folder with the CNI plugins of this machine and ours.

    Args:
        machine: the node.
        found: folder of this machine's.
    """
    folder = machine.folder / "plugins"
    folder.mkdir()
    for program in found.iterdir():
        (folder / program.name).symlink_to(program)
    ours = folder / plugin.TYPE
    # The container runtime passes PYTHONPATH on.
    ours.write_text(f"#!/bin/sh\nexec '{sys.executable}' -m {plugin.__name__}\n")
    ours.chmod(0o755)
    return folder


def plugin_settings(machine: Machine) -> dict[str, str]:
    """Settings of our CNI plugin on a node."""
    return {"type": plugin.TYPE, "register": str(_register(machine))}


def enforcer(
    node: RealNode, machine: Machine, pods: IPv4Network, *, addresses: Addresses, kubeconfig: Path
) -> list[str]:
    """The command of a node's enforcer.

    Args:
        node: the node.
        machine: its namespaces.
        pods: addresses of its pods.
        addresses: the sandbox's addresses.
        kubeconfig: of `USER`.
    """
    Register(_register(machine)).create()
    file = machine.folder / "network-policies.json"
    Settings(
        kubeconfig=str(kubeconfig),
        local=str(pods),
        register=str(_register(machine)),
        aliases=[
            *((subnet, str(addresses.range)) for subnet in node.subnets),
            (node.api_service, API_SERVICE),
        ],
        stand_ins=[(namespace, labels, addresses.services) for namespace, labels in PROCESSES],
    ).write(file)
    return [sys.executable, "-m", Settings.__module__, str(file)]


def rights() -> Iterator[Manifest]:
    """Objects that let `USER` watch what it needs."""
    api, metadata = "rbac.authorization.k8s.io/v1", {"name": USER}
    kinds = {"": ["namespaces", "pods"], "networking.k8s.io": ["networkpolicies"]}
    yield {
        "apiVersion": api,
        "kind": "ClusterRole",
        "metadata": metadata,
        "rules": [
            {"apiGroups": [group], "resources": resources, "verbs": ["list", "watch"]}
            for group, resources in kinds.items()
        ],
    }
    yield {
        "apiVersion": api,
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
    }


def _register(machine: Machine) -> Path:
    return machine.folder / "register"
