"""Paths, ports and command-line arguments of a control plane."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from infra.spec.node_labels import FAKE_NODE_ANNOTATION

STAGES = Path(__file__).with_name("stages.yaml")
"""kwok Stages: the life cycle of fake nodes and their pods."""

API_SERVICE = "10.0.0.1"
"""Address of the Service `kubernetes`: the first of the range of Services."""

DNS_SERVICE = "10.0.0.10"
"""Address of the cluster's DNS, where real nodes run; EKS gives it the same place in the range of Services."""

_KEY_ISSUER = "https://kubernetes.default.svc"
_SERVICES = "10.0.0.0/24"
_LOOPBACK = "127.0.0.1"


def kubeconfig_in(folder: Path) -> Path:
    """The administrator's kubeconfig of the control plane in `folder`."""
    return folder / "kubeconfig"


@dataclass(frozen=True, kw_only=True)
class NodeAccess:
    """How the control plane and real nodes reach each other.

    Attributes:
        address: address of this machine that nodes and pods reach; the API server listens there.
        certificate: certificate with which the API server is known to the kubelets.
        key: its key.
        tokens: lines of the token file for the nodes' programs.
    """

    address: str
    certificate: Path
    key: Path
    tokens: str


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Paths and ports of a control plane.

    Attributes:
        folder: all files it writes.
        api_port: port of the API server.
        etcd_port: client port of etcd.
        etcd_peer_port: peer port of etcd.
        nodes: real nodes; None: all nodes are fake, and the API server listens on loopback.
    """

    folder: Path
    api_port: int
    etcd_port: int
    etcd_peer_port: int
    nodes: NodeAccess | None = None

    @property
    def address(self) -> str:
        """Address of the API server."""
        return _LOOPBACK if self.nodes is None else self.nodes.address

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{self.address}:{self.api_port}"

    @property
    def certificate(self) -> Path:
        """The API server's self-signed certificate, which it generates at its start."""
        return self.folder / "certificates" / "apiserver.crt"

    @property
    def tokens(self) -> Path:
        """Token file of the API server."""
        return self.folder / "tokens.csv"

    @property
    def account_key(self) -> Path:
        """Key that signs the tokens of service accounts."""
        return self.folder / "service-accounts.key"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return kubeconfig_in(self.folder)

    def log(self, program: str) -> Path:
        """Log file of a program."""
        return self.folder / f"{program}.log"


def etcd(layout: Layout) -> list[str]:
    """Arguments of etcd: a single member on loopback, without fsync."""
    clients, peers = f"http://127.0.0.1:{layout.etcd_port}", f"http://127.0.0.1:{layout.etcd_peer_port}"
    return [
        f"--data-dir={layout.folder / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def kube_apiserver(layout: Layout) -> list[str]:
    """Arguments of the API server: RBAC, and the default admission plugins."""
    return [
        f"--etcd-servers=http://127.0.0.1:{layout.etcd_port}",
        f"--bind-address={layout.address}",
        f"--advertise-address={layout.address}",
        f"--secure-port={layout.api_port}",
        f"--cert-dir={layout.certificate.parent}",
        "--anonymous-auth=false",
        f"--token-auth-file={layout.tokens}",
        f"--service-account-issuer={_KEY_ISSUER}",
        f"--service-account-key-file={layout.account_key}",
        f"--service-account-signing-key-file={layout.account_key}",
        f"--service-cluster-ip-range={_SERVICES}",
        # With the watch cache, the first read of a new kind waits a second until the cache is filled.
        "--watch-cache=false",
        "--allow-privileged=true",  # Pod Security decides
        "--profiling=false",
        *_node_access(layout.nodes),
    ]


def _node_access(nodes: NodeAccess | None) -> list[str]:
    """Arguments of the API server for the nodes there are."""
    if nodes is None:
        # A loopback address cannot be an endpoint of the Service `kubernetes`.
        return ["--endpoint-reconciler-type=none", "--authorization-mode=RBAC"]
    return [
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--kubelet-client-certificate={nodes.certificate}",
        f"--kubelet-client-key={nodes.key}",
        "--kubelet-preferred-address-types=InternalIP",
        # Kubernetes 1.35 has these policies, and does not enable them; see `node.objects`.
        "--feature-gates=MutatingAdmissionPolicy=true",
        "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
    ]


def kube_controller_manager(layout: Layout) -> list[str]:
    """Arguments of the controller manager, with its default controllers."""
    return [
        *_client(layout),
        f"--service-account-private-key-file={layout.account_key}",
        f"--root-ca-file={layout.certificate}",
        "--use-service-account-credentials=false",
        # The objects of one test have to be collected before the next test looks.
        "--concurrent-gc-syncs=8",
        "--concurrent-namespace-syncs=16",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]


def kube_scheduler(layout: Layout) -> list[str]:
    """Arguments of the scheduler, with its default profile."""
    return [*_client(layout), "--kube-api-qps=500", "--kube-api-burst=1000"]


def kwok(layout: Layout) -> list[str]:
    """Arguments of kwok, which manages the annotated nodes and their pods only."""
    return [
        f"--kubeconfig={layout.kubeconfig}",
        f"--config={STAGES}",
        f"--manage-nodes-with-annotation-selector={FAKE_NODE_ANNOTATION}=fake",
        "--node-lease-duration-seconds=40",
    ]


def _client(layout: Layout) -> list[str]:
    """Arguments of a single-instance client without a port of its own."""
    return [
        f"--kubeconfig={layout.kubeconfig}",
        f"--authentication-kubeconfig={layout.kubeconfig}",
        f"--authorization-kubeconfig={layout.kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        "--profiling=false",
    ]
