"""`python -m infra.lifecycle.sandbox.node.policies.enforcer FILE`: keeps a node's rules equal to the cluster's NetworkPolicies.

Runs in the node's namespaces. When it ends, the rules stay as they are; when it starts again, it replaces them. While the API server
does not answer they stay too, so that new pods get no connection, and policies do not change.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from infra.kube.api import KubernetesApi
from infra.kube.client import client_of
from infra.lifecycle.sandbox.node.policies.register import Register
from infra.lifecycle.sandbox.node.policies.rules import TABLE, Ranges, State, chains, next_input
from infra.lifecycle.sandbox.node.policies.selection import Pod, addressed_pods, pod_at
from infra.spec.errors import PlatformError
from infra.spec.manifest import Manifest

_KINDS = (("networking.k8s.io/v1", "NetworkPolicy"), ("v1", "Pod"), ("v1", "Namespace"))
_RETRY_SECONDS = 1.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the enforcer of a node needs to know.

    Attributes:
        kubeconfig: path of a kubeconfig that may watch NetworkPolicies, pods and namespaces.
        local: address range of the node's pods.
        register: folder of the node's `Register`.
        aliases: see `rules.Ranges`.
        stand_ins: namespace, labels and address of processes that the policies treat as pods, which they are on EKS.
    """

    kubeconfig: str
    local: str
    register: str
    aliases: Sequence[tuple[str, str]]
    stand_ins: Sequence[tuple[str, Mapping[str, str], str]]

    def write(self, file: Path) -> None:
        """Write them for the enforcer."""
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @property
    def ranges(self) -> Ranges:
        """The address ranges."""
        aliases = [(IPv4Network(theirs), IPv4Network(ours)) for theirs, ours in self.aliases]
        return Ranges(local=IPv4Network(self.local), aliases=aliases)

    @property
    def pods(self) -> list[Pod]:
        """The processes as pods."""
        return [Pod(namespace=name, labels=labels, address=address) for name, labels, address in self.stand_ins]


def enforce(settings: Settings) -> None:
    """Watch the cluster, and write rules whenever others follow; does not return unless a watch ends unexpectedly."""
    found: dict[str, Mapping[str, Manifest]] = {}
    changed = threading.Event()
    api = KubernetesApi(client_of(Path(settings.kubeconfig)))
    watches = [
        threading.Thread(target=_watch, args=(api, version, kind, found, changed), name=kind, daemon=True)
        for version, kind in _KINDS
    ]
    for watch in watches:
        watch.start()
    register = Register(Path(settings.register))
    written: dict[str, list[str]] | None = None
    seen: dict[str, str] = {}
    while all(watch.is_alive() for watch in watches):
        is_changed = changed.wait(_POLL_SECONDS)
        changed.clear()
        addresses = register.addresses()
        if len(found) < len(_KINDS) or not (is_changed or addresses != seen):
            continue
        seen = addresses
        now = dict(found)
        known = {address: uid for address, uid in addresses.items() if uid in now["Pod"]}
        wanted = chains(state_of(now, known, settings), settings.ranges)
        if wanted != written:
            _write(wanted)
            written = wanted
        register.confirm(known)


def state_of(found: Mapping[str, Mapping[str, Manifest]], own: Mapping[str, str], settings: Settings) -> State:
    """What the rules follow from.

    Args:
        found: objects by uid, by kind.
        own: uid by address of the node's pods; the register knows them before the API server does.
        settings: the node's.
    """
    pods = found["Pod"]
    local = settings.ranges.local
    others = (pod for pod in addressed_pods(pods.values()) if IPv4Address(pod.address) not in local)
    return State(
        policies=list(found["NetworkPolicy"].values()),
        pods=[*others, *(pod_at(address, pods[uid]) for address, uid in own.items()), *settings.pods],
        namespaces={one["metadata"]["name"]: one["metadata"].get("labels", {}) for one in found["Namespace"].values()},
    )


def _watch(
    api: KubernetesApi, version: str, kind: str, found: dict[str, Mapping[str, Manifest]], changed: threading.Event
) -> None:
    while True:
        try:
            for objects in api.watched(version, kind):
                found[kind] = objects
                changed.set()
        except PlatformError as error:
            print(f"{error}: trying again", flush=True)
            time.sleep(_RETRY_SECONDS)


def _write(wanted: Mapping[str, Sequence[str]]) -> None:
    """Replace the rules of this network namespace; a failure ends the process, which is then restarted."""
    saved = subprocess.run(["iptables-save", "-t", TABLE], check=True, capture_output=True, text=True).stdout
    subprocess.run(["iptables-restore", "--noflush"], input=next_input(wanted, saved), check=True, text=True)
    print(f"wrote {sum(map(len, wanted.values()))} rules in {len(wanted)} chains", flush=True)


if __name__ == "__main__":
    enforce(Settings(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
