"""Configuration of the programs of a real node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from infra.lifecycle.sandbox.layout import DNS_SERVICE
from infra.lifecycle.sandbox.node.addresses import CLUSTER_DOMAIN, Addresses
from infra.lifecycle.sandbox.node.request import RealNode

PAUSE_IMAGE = "sandbox.local/pause:1"
"""Image of the container that holds a pod's namespaces; made and imported by the sandbox, because there may be no registry."""

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
"""In the node's mount namespace."""

KUBELET_FOLDER = Path("/var/lib/kubelet")
"""In the node's mount namespace: the kubelet keeps its devices there whatever its `--root-dir` is."""

CONTAINERD_FOLDER = Path("/var/lib/containerd")
"""In the node's mount namespace."""

HIDDEN_FOLDERS = (
    str(KUBELET_FOLDER),
    str(CONTAINERD_FOLDER),
    "/var/lib/cni",
    "/var/log/pods",
    "/var/log/containers",
)
"""Folders that the programs of a node use under these names; a node has its own."""

SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What the kubelet sets (kubernetes `pkg/util/sysctl`). The kernel has one of each for all namespaces, so a node reads files instead,
and this machine's settings stay as they are."""

RESERVE = "1Gi"
"""Free disk below which the kubelet evicts pods."""


def containerd(*, plugins: Path, networks: Path, registries: Path, snapshotter: str) -> str:
    """Containerd's configuration, of version 2, which 1.6 to 2 read.

    Args:
        plugins: folder of the CNI plugins.
        networks: folder of the CNI configuration.
        registries: folder that says how registries are reached, see `images.registry.containerd_hosts`.
        snapshotter: see `prerequisites.Tools`.
    """
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{CONTAINERD_FOLDER}"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs"]

[grpc]
address = "{CONTAINERD_SOCKET}"

[{cri}]
sandbox_image = "{PAUSE_IMAGE}"
# A machine without CAP_SYS_RESOURCE cannot lower a score.
restrict_oom_score_adj = true

[{cri}.cni]
bin_dir = "{plugins}"
conf_dir = "{networks}"

[{cri}.registry]
config_path = "{registries}"

[{cri}.containerd]
snapshotter = "{snapshotter}"
# The registry has them too; a node keeps an image once, unpacked.
discard_unpacked_layers = true

[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"""


def pod_network(pods: IPv4Network, *, policies: Mapping[str, str]) -> str:
    """CNI configuration: a link between each pod and its node, which routes. Packets keep the pod's address, as in a VPC.

    Without a bridge, every packet passes the node's iptables, and no pod reaches another by an address of the link.

    Args:
        pods: addresses of the node's pods.
        policies: settings of the plugin that waits for a pod's NetworkPolicies.
    """
    link = {
        "type": "ptp",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": str(pods)}]], "routes": [{"dst": "0.0.0.0/0"}]},
    }
    plugins = [link, {"type": "portmap", "capabilities": {"portMappings": True}}, policies]
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": plugins})


def kubelet(node: RealNode, *, address: str, clients: Path, resolver: Path, volume_plugins: Path) -> dict[str, Any]:
    """KubeletConfiguration.

    Args:
        node: the node.
        address: its address.
        clients: certificate of the API server's client, which signed itself.
        resolver: resolv.conf of pods that use the node's DNS.
        volume_plugins: an empty folder.
    """
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(clients)},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,  # pods get none (NoSwap), so swap of this machine changes nothing
        "clusterDNS": [DNS_SERVICE],
        "clusterDomain": CLUSTER_DOMAIN,
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "resolvConf": str(resolver),
        "maxPods": node.max_pods,
        "registerWithTaints": list(node.taints),
        "volumePluginDir": str(volume_plugins),
        # The limit of all pods would be that of the group's instance type, see `objects.capacity_policy`.
        "enforceNodeAllocatable": [],
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": RESERVE, "imagefs.available": RESERVE},
        "imageGCHighThresholdPercent": 100,  # never: no registry has the imported images
    }


def kube_proxy(*, kubeconfig: Path, pods: IPv4Network, node: str) -> dict[str, Any]:
    """KubeProxyConfiguration: iptables, without changes of kernel settings that all namespaces share."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "hostnameOverride": node,
        "clusterCIDR": str(pods),
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "iptables": {"localhostNodePorts": False, "minSyncPeriod": "100ms"},
        "metricsBindAddress": "127.0.0.1:10249",
    }


def corefile(*, addresses: Addresses, kubeconfig: Path) -> str:
    """CoreDNS's configuration: the cluster's names only; a query for another is refused at once.

    Without a cache, so that the name of a new Service resolves at once even if it was asked for before.
    """
    return f"""{CLUSTER_DOMAIN} in-addr.arpa {{
    bind {addresses.services}
    errors
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 5
    }}
}}
"""


def resolv_conf(nameserver: str) -> str:
    """A resolver's configuration with one name server."""
    return f"nameserver {nameserver}\n"
