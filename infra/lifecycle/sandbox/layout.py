"""Paths, ports and command-line arguments of a control plane."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

STAGES = Path(__file__).with_name("stages.yaml")
"""kwok Stages: the life cycle of fake nodes and their pods."""

FAKE_NODE_ANNOTATION = "kwok.x-k8s.io/node"
"""Annotation of the nodes that kwok manages; value `fake`."""

_KEY_ISSUER = "https://kubernetes.default.svc"
_SERVICES = "10.0.0.0/24"


def kubeconfig_in(folder: Path) -> Path:
    """The administrator's kubeconfig of the control plane in `folder`."""
    return folder / "kubeconfig"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Paths and ports of a control plane.

    Attributes:
        folder: all files it writes.
        api_port: port of the API server.
        etcd_port: client port of etcd.
        etcd_peer_port: peer port of etcd.
    """

    folder: Path
    api_port: int
    etcd_port: int
    etcd_peer_port: int

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self.api_port}"

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
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.api_port}",
        f"--cert-dir={layout.certificate.parent}",
        "--endpoint-reconciler-type=none",  # a loopback address cannot be an endpoint of the Service `kubernetes`
        "--advertise-address=127.0.0.1",
        "--authorization-mode=RBAC",
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
