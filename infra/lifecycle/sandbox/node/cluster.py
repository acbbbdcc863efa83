"""The real nodes of a sandbox, from their namespaces to Ready."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from infra.kube.api import KubernetesApi
from infra.lifecycle.sandbox import credentials
from infra.lifecycle.sandbox.control_plane import ControlPlane
from infra.lifecycle.sandbox.images.registry import PORT, containerd_hosts
from infra.lifecycle.sandbox.layout import NodeAccess
from infra.lifecycle.sandbox.node import cgroups, configuration, leftovers, prerequisites
from infra.lifecycle.sandbox.node.addresses import free_addresses, name_of, routed_networks
from infra.lifecycle.sandbox.node.images import import_into, write_image
from infra.lifecycle.sandbox.node.machine import Machine, done
from infra.lifecycle.sandbox.node.network import connect_host, connect_nodes
from infra.lifecycle.sandbox.node.objects import node_objects
from infra.lifecycle.sandbox.node.policies import attach as network_policies
from infra.lifecycle.sandbox.node.prerequisites import SYSTEM_PATH
from infra.lifecycle.sandbox.node.request import RealNode
from infra.spec.manifest_yaml import write_document

SERVICES = "services"
"""Name of the machine with the bridge, where CoreDNS and the operators run: it resolves and reaches Services as a node does."""

_READY_SECONDS = 120.0
_PROXY_USER = "system:kube-proxy"


class RealNodes:
    """Real nodes, existing while the context is open.

    Attributes:
        folder: their files.
        access: what the control plane needs to know of them.
        services: the machine where programs reach Services.
    """

    access: NodeAccess
    services: Machine

    def __init__(self, folder: Path, nodes: Sequence[RealNode], environment: Mapping[str, str]) -> None:
        """Nothing is started.

        Args:
            folder: the sandbox's folder.
            nodes: the nodes.
            environment: see `prerequisites.check`.
        """
        self._sandbox = folder
        self.folder = leftovers.node_folder(folder)
        self._nodes = tuple(nodes)
        self._environment = environment
        self._name = name_of(folder)
        self._machines: list[Machine] = []
        users = (*(node.name for node in nodes), _PROXY_USER, network_policies.USER)
        self._tokens = {user: secrets.token_hex(32) for user in users}

    def __enter__(self) -> Self:
        """Check the machine and make the network, on which the API server listens.

        Raises:
            RefusedError: this machine lacks something, see `prerequisites.check`.
            PlatformError: the network was not made.
        """
        leftovers.remove(self._sandbox)
        self._tools = prerequisites.check(self.folder, self._environment)
        self._addresses = free_addresses(routed_networks())
        try:
            self._open()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all that runs on the nodes, and remove them."""
        self._close()

    def start(
        self, plane: ControlPlane, *, programs: Mapping[str, Sequence[str]] | None = None, folders: Sequence[str] = ()
    ) -> None:
        """Start the nodes, and wait until they are Ready.

        Args:
            plane: the control plane, started with `access`.
            programs: more programs of the machine `services`; see `Machine.run`.
            folders: folders that this machine has of its own; see `Machine.run`.

        Raises:
            PlatformError: a node is not Ready in time; carries the ends of its logs.
        """
        api = KubernetesApi(plane.client())
        for manifest in (*node_objects(self._nodes, dns=self._addresses.services), *network_policies.rights()):
            api.apply(manifest)
        self._start_services(plane, programs or {}, folders)
        machines = [self._machine(node.name, self._addresses.node(index)) for index, node in enumerate(self._nodes)]
        connect_nodes(machines, self.services, addresses=self._addresses)
        for index, (node, machine) in enumerate(zip(self._nodes, machines, strict=True)):
            self._start_node(node, machine, index, plane)
        pause = self.folder / "pause.tar"
        write_image(
            pause,
            name=configuration.PAUSE_IMAGE,
            files={"/pause": self._tools.programs["pause"]},
            entrypoint=["/pause"],
        )
        for machine in machines:
            import_into(machine.process, pause, snapshotter=self._tools.snapshotter)
        for machine in machines:
            machine.await_(partial(_is_ready, api, machine.name), what="Ready", seconds=_READY_SECONDS)

    def mount_read_only(self, folder: str, target: str) -> None:
        """Mount a folder of this machine a second time on every node, read-only.

        Args:
            folder: the folder.
            target: an empty folder.

        Raises:
            PlatformError: it was not mounted.
        """
        for machine in self._machines:
            if machine is not self.services:
                machine.do("mount", "--bind", folder, target)
                machine.do("mount", "-o", "remount,bind,ro", target)

    def _open(self) -> None:
        self.folder.mkdir(parents=True, mode=0o700)
        self._link_iptables()
        certificate, key = _client_certificate(self.folder)
        self.services = self._machine(SERVICES, self._addresses.services)
        connect_host(self.services, link=self._name, addresses=self._addresses)
        users = {name: (f"system:node:{name}", "system:nodes") for name in self._tokens}
        users[_PROXY_USER] = (_PROXY_USER, "system:node-proxiers")
        users[network_policies.USER] = (network_policies.USER, network_policies.USER)
        self.access = NodeAccess(
            address=self._addresses.host,
            certificate=certificate,
            key=key,
            tokens="".join(
                credentials.token_file(token, user=users[name][0], group=users[name][1])
                for name, token in self._tokens.items()
            ),
        )

    def _close(self) -> None:
        for machine in reversed(self._machines):
            machine.stop()
        self._machines.clear()
        leftovers.remove(self._sandbox)

    def _machine(self, name: str, address: str) -> Machine:
        machine = Machine(name, address=address, folder=self.folder / name)
        self._machines.append(machine)
        cgroups.make(f"{self._name}/{name}")
        return machine

    def _link_iptables(self) -> None:
        """A folder for PATH with the variant of iptables that works here under the names that kube-proxy and the plugins use."""
        folder = self.folder / "bin"
        folder.mkdir()
        found = self._tools.iptables
        for action in ("", "-save", "-restore"):
            (folder / f"iptables{action}").symlink_to(f"{found}{action}")
            (folder / f"ip6tables{action}").symlink_to(f"{found.with_name(found.name.replace('ip', 'ip6', 1))}{action}")

    @property
    def _path(self) -> str:
        return f"{self.folder / 'bin'}:{SYSTEM_PATH}"

    def _kubeconfig(self, plane: ControlPlane, machine: Machine, user: str) -> Path:
        path = machine.folder / f"{user.replace(':', '-')}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(plane.kubeconfig_for(self._tokens[user]), encoding="utf-8")
        return path

    def _proxy(self, plane: ControlPlane, machine: Machine, *, node: str) -> list[str]:
        """The command of kube-proxy, which waits for its Node object."""
        settings = configuration.kube_proxy(
            kubeconfig=self._kubeconfig(plane, machine, _PROXY_USER),
            pods=self._addresses.range,
            node=node,
        )
        return [
            str(self._tools.programs["kube-proxy"]),
            f"--config={_yaml(machine.folder / 'kube-proxy.yaml', settings)}",
        ]

    def _start_services(
        self, plane: ControlPlane, programs: Mapping[str, Sequence[str]], folders: Sequence[str]
    ) -> None:
        corefile = self.services.folder / "Corefile"
        corefile.write_text(
            configuration.corefile(addresses=self._addresses, kubeconfig=plane.kubeconfig), encoding="utf-8"
        )
        self.services.run(
            {
                "coredns": [str(self._tools.programs["coredns"]), f"-conf={corefile}"],
                "kube-proxy": self._proxy(plane, self.services, node=self._nodes[0].name),
                **programs,
            },
            cgroup=f"{self._name}/{SERVICES}",
            path=self._path,
            folders=folders,
            files={"/etc/resolv.conf": configuration.resolv_conf(self._addresses.services)},
        )

    def _start_node(self, node: RealNode, machine: Machine, index: int, plane: ControlPlane) -> None:
        (machine.folder / "snapshotter").write_text(self._tools.snapshotter, encoding="utf-8")
        pods = self._addresses.pods(index)
        network_policies.close(machine, pods, restore=self.folder / "bin" / "iptables-restore")
        programs = {
            "containerd": self._containerd(machine, index),
            "kubelet": self._kubelet(node, machine, plane),
            "kube-proxy": self._proxy(plane, machine, node=node.name),
            "network-policies": network_policies.enforcer(
                node,
                machine,
                pods,
                addresses=self._addresses,
                kubeconfig=self._kubeconfig(plane, machine, network_policies.USER),
            ),
        }
        if node.devices:
            registry = configuration.KUBELET_FOLDER / "plugins_registry"
            devices = [f"{resource}={count}" for resource, count in node.devices.items()]
            programs["device-plugin"] = [str(self._tools.programs["device-plugin"]), str(registry), *devices]
        machine.run(
            programs,
            cgroup=f"{self._name}/{node.name}",
            path=self._path,
            folders=configuration.HIDDEN_FOLDERS,
            files={f"/proc/sys/{name}": f"{value}\n" for name, value in configuration.SYSCTLS.items()},
        )

    def _containerd(self, machine: Machine, index: int) -> list[str]:
        networks = machine.folder / "networks"
        networks.mkdir()
        (networks / "pods.conflist").write_text(
            configuration.pod_network(self._addresses.pods(index), policies=network_policies.plugin_settings(machine)),
            encoding="utf-8",
        )
        registries = machine.folder / "registries"
        for name, text in containerd_hosts(f"{self._addresses.host}:{PORT}").items():
            (registries / name).parent.mkdir(parents=True)
            (registries / name).write_text(text, encoding="utf-8")
        settings = machine.folder / "containerd.toml"
        settings.write_text(
            configuration.containerd(
                plugins=network_policies.plugins(machine, self._tools.plugins),
                networks=networks,
                registries=registries,
                snapshotter=self._tools.snapshotter,
            ),
            encoding="utf-8",
        )
        return [str(self._tools.programs["containerd"]), f"--config={settings}"]

    def _kubelet(self, node: RealNode, machine: Machine, plane: ControlPlane) -> list[str]:
        volume_plugins, resolver = machine.folder / "volume-plugins", machine.folder / "resolv.conf"
        volume_plugins.mkdir()
        resolver.write_text(configuration.resolv_conf(self._addresses.services), encoding="utf-8")
        settings = configuration.kubelet(
            node,
            address=machine.address,
            clients=self.access.certificate,
            resolver=resolver,
            volume_plugins=volume_plugins,
        )
        labels = ",".join(f"{key}={value}" for key, value in node.labels.items())
        return [
            str(self._tools.programs["kubelet"]),
            f"--config={_yaml(machine.folder / 'kubelet.yaml', settings)}",
            f"--kubeconfig={self._kubeconfig(plane, machine, node.name)}",
            f"--root-dir={configuration.KUBELET_FOLDER}",
            f"--cert-dir={configuration.KUBELET_FOLDER / 'pki'}",
            f"--node-ip={machine.address}",
            f"--node-labels={labels}",
        ]


def _is_ready(api: KubernetesApi, name: str) -> bool:
    node = api.read({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}) or {}
    conditions = node.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _yaml(path: Path, document: Mapping[str, Any]) -> Path:
    path.write_text(write_document(dict(document)), encoding="utf-8")
    return path


def _client_certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate and its key, with which the API server is known to the kubelets."""
    certificate, key = folder / "kubelet-client.crt", folder / "kubelet-client.key"
    done(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "365"),
        *("-subj", "/O=system:masters/CN=kube-apiserver", "-addext", "extendedKeyUsage=clientAuth"),
        *("-keyout", key, "-out", certificate),
    )
    return certificate, key
