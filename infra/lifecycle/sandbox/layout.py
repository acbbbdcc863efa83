"""Where a control plane keeps its files and listens, and what each of its programs is told: policy without a process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

STAGES = Path(__file__).with_name("stages.yaml")
"""What becomes of nodes and pods that nobody runs, for kwok."""

FAKE_NODE_ANNOTATION = "kwok.x-k8s.io/node"
"""Annotation of the nodes that kwok plays; value `fake`."""

_KEY_ISSUER = "https://kubernetes.default.svc"
_SERVICES = "10.0.0.0/24"


def kubeconfig_in(folder: Path) -> Path:
    """The kubeconfig of the control plane in `folder`: an administrator's."""
    return folder / "kubeconfig"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A control plane on this machine.

    Attributes:
        folder: everything it writes.
        api_port: port of the API server on loopback.
        etcd_port: port of etcd's clients.
        etcd_peer_port: port etcd would meet other members on.
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
        """The API server's certificate and the authority that signed it; the server makes both at its start."""
        return self.folder / "certificates" / "apiserver.crt"

    @property
    def tokens(self) -> Path:
        """Who may log in, as the API server reads it."""
        return self.folder / "tokens.csv"

    @property
    def account_key(self) -> Path:
        """Key with which the tokens of service accounts are signed."""
        return self.folder / "service-accounts.key"

    @property
    def kubeconfig(self) -> Path:
        """How a client finds the API server and who it is there: an administrator."""
        return kubeconfig_in(self.folder)

    def log(self, program: str) -> Path:
        """What a program prints."""
        return self.folder / f"{program}.log"


def etcd(layout: Layout) -> list[str]:
    """Arguments of etcd: one member on loopback that never waits for a disk."""
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
    """Arguments of the API server: role-based access, and every admission plugin that is on by default."""
    return [
        f"--etcd-servers=http://127.0.0.1:{layout.etcd_port}",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.api_port}",
        f"--cert-dir={layout.certificate.parent}",
        "--endpoint-reconciler-type=none",  # loopback may not be an endpoint of the service `kubernetes`
        "--advertise-address=127.0.0.1",
        "--authorization-mode=RBAC",
        "--anonymous-auth=false",
        f"--token-auth-file={layout.tokens}",
        f"--service-account-issuer={_KEY_ISSUER}",
        f"--service-account-key-file={layout.account_key}",
        f"--service-account-signing-key-file={layout.account_key}",
        f"--service-cluster-ip-range={_SERVICES}",
        # The first look at a new kind would otherwise wait a second, until its cache is filled.
        "--watch-cache=false",
        "--allow-privileged=true",  # what is refused is for Pod Security to say
        "--profiling=false",
    ]


def kube_controller_manager(layout: Layout) -> list[str]:
    """Arguments of the controllers, all that are on by default."""
    return [
        *_client(layout),
        f"--service-account-private-key-file={layout.account_key}",
        f"--root-ca-file={layout.certificate}",
        "--use-service-account-credentials=false",
        # Garbage of a test has to be gone before the next one looks.
        "--concurrent-gc-syncs=8",
        "--concurrent-namespace-syncs=16",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]


def kube_scheduler(layout: Layout) -> list[str]:
    """Arguments of the scheduler, with its default profile."""
    return [*_client(layout), "--kube-api-qps=500", "--kube-api-burst=1000"]


def kwok(layout: Layout) -> list[str]:
    """Arguments of kwok: it plays the annotated nodes and the pods on them, and no other."""
    return [
        f"--kubeconfig={layout.kubeconfig}",
        f"--config={STAGES}",
        f"--manage-nodes-with-annotation-selector={FAKE_NODE_ANNOTATION}=fake",
        "--node-lease-duration-seconds=40",
    ]


def _client(layout: Layout) -> list[str]:
    """A single instance that serves nothing."""
    return [
        f"--kubeconfig={layout.kubeconfig}",
        f"--authentication-kubeconfig={layout.kubeconfig}",
        f"--authorization-kubeconfig={layout.kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        "--profiling=false",
    ]
