"""Network policies: nothing is open in our namespaces but what the table `openings` lists.

The VPC CNI enforces them. Three things need no opening: the kubelet's probes and port forwarding, which come from the
node itself; NFS, which the EFS driver mounts on the node; and EFA, which passes by the kernel's network. Pods on the
host's network, device plugins and the node exporter, are outside of every policy. The instance metadata service at
169.254.169.254 is opened to nobody: pods have their credentials by Pod Identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from infra.spec.cluster_names import (
    GPU_NAMESPACE,
    KUBERAY_NAMESPACE,
    KUEUE_NAMESPACE,
    MLFLOW_NAMESPACE,
    MONITORING_NAMESPACE,
    RAY_PORTS,
)
from infra.spec.manifest import Manifest, api_object, labels
from infra.spec.release import ReleaseManifest
from infra.spec.settings.network import subnets_of
from infra.spec.settings.stack import StackSettings
from platform_charts.objects.mlflow import PORT as MLFLOW_PORT
from platform_charts.objects.mlflow import SERVER as MLFLOW_SERVER
from platform_charts.objects.namespaces import platform_namespaces

Direction = Literal["Ingress", "Egress"]


@dataclass(frozen=True, kw_only=True)
class Pods:
    """Pods of one namespace; without labels all of them."""

    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = ", ".join(f"{key}={value}" for key, value in self.labels.items())
        return f"{self.namespace} ({shown})" if shown else self.namespace


@dataclass(frozen=True, kw_only=True)
class Addresses:
    """Address ranges.

    Attributes:
        name: what lies there.
        ranges: CIDR blocks.
        excepted: blocks within each of them that do not belong to it.
    """

    name: str
    ranges: tuple[str, ...]
    excepted: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


Peer = Pods | Addresses


@dataclass(frozen=True, kw_only=True)
class Opening:
    """One line of the table. Each source may call each target; answers need no opening.

    Attributes:
        name: name of its policies.
        sources: who calls.
        targets: who is called.
        ports: ports of the targets; empty opens all.
        protocols: protocols of these ports.
        reason: why.
    """

    name: str
    sources: tuple[Peer, ...]
    targets: tuple[Peer, ...]
    ports: tuple[int, ...]
    protocols: tuple[Literal["TCP", "UDP"], ...] = ("TCP",)
    reason: str


DNS = Pods(namespace="kube-system", labels={"k8s-app": "kube-dns"})
POD_IDENTITY = Addresses(name="Pod Identity agent", ranges=("169.254.170.23/32",))
INTERNET = Addresses(name="any address", ranges=("0.0.0.0/0",), excepted=("169.254.0.0/16",))
"""AWS's services by their endpoints, public or in the VPC, have no fixed addresses a policy could name."""

PROMETHEUS = Pods(namespace=MONITORING_NAMESPACE, labels={"app.kubernetes.io/name": "prometheus"})
MLFLOW = Pods(namespace=MLFLOW_NAMESPACE, labels={"app.kubernetes.io/name": MLFLOW_SERVER})

_RAY_NODE = {"ray.io/is-ray-node": "yes"}
_RAY_HEAD = {"ray.io/node-type": "head"}
_NODE_PORTS = (9100, 10250)
_KUBE_SYSTEM_PORTS = (8085, 9153)


def openings(settings: StackSettings, *, database_port: int, api_server_cidrs: Sequence[str]) -> tuple[Opening, ...]:
    """The table of everything that is open.

    Args:
        settings: the environment.
        database_port: port of MLflow's database.
        api_server_cidrs: ranges of the API server's network interfaces.
    """
    # A packet to a service passes the policy before its address is translated to the API server's own.
    service = f"{settings.network.service_cidr[1]}/32"
    api_server = Addresses(name="API server", ranges=(*api_server_cidrs, service))
    return (
        *_everywhere(settings),
        *(one for team in settings.teams for one in _inside_a_team(team.name)),
        *_between_namespaces(settings, database_port),
        *_control_plane(api_server),
        *_metrics(settings),
    )


def network_policies(
    settings: StackSettings, release: ReleaseManifest, table: Sequence[Opening]
) -> tuple[Manifest, ...]:
    """Default deny in every namespace of ours, and the table's openings at both of their ends."""
    ours = platform_namespaces(settings)
    marks = labels("network", version=release.platform)
    deny = [
        _policy("default-deny", Pods(namespace=name), marks, {"policyTypes": ["Ingress", "Egress"]}) for name in ours
    ]
    opened = [policy for opening in table for policy in _policies(opening, frozenset(ours), marks)]
    return (*deny, *opened)


def as_table(table: Sequence[Opening]) -> str:
    """The table in Markdown, for the documents."""
    rows = [
        (
            opening.name,
            "<br>".join(map(str, opening.sources)),
            "<br>".join(map(str, opening.targets)),
            ", ".join(map(str, opening.ports)) or "all",
            opening.reason,
        )
        for opening in table
    ]
    lines = (("opening", "from", "to", "ports", "why"), ("---",) * 5, *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _everywhere(settings: StackSettings) -> Iterator[Opening]:
    yield Opening(
        name="dns",
        sources=tuple(Pods(namespace=name) for name in platform_namespaces(settings)),
        targets=(DNS,),
        ports=(53,),
        protocols=("UDP", "TCP"),
        reason="names of services",
    )


def _inside_a_team(team: str) -> Iterator[Opening]:
    """Policies cannot say "of the same job"; a team's jobs see each other, and no other team's."""
    nodes = Pods(namespace=team, labels=_RAY_NODE)
    yield Opening(
        name="ray",
        sources=(nodes,),
        targets=(nodes,),
        ports=(),
        reason="Ray and NCCL take ports as they come",
    )
    yield Opening(
        name="ray-submit",
        sources=(Pods(namespace=team),),
        targets=(Pods(namespace=team, labels=_RAY_HEAD),),
        ports=(RAY_PORTS["dashboard"],),
        reason="a RayJob's submitter gives its job to the head; token required",
    )


def _between_namespaces(settings: StackSettings, database_port: int) -> Iterator[Opening]:
    teams = tuple(Pods(namespace=team.name) for team in settings.teams)
    heads = tuple(Pods(namespace=team.name, labels=_RAY_HEAD) for team in settings.teams)
    everything = Pods(namespace=MLFLOW_NAMESPACE)
    if teams:
        yield Opening(
            name="mlflow",
            sources=teams,
            targets=(MLFLOW,),
            ports=(MLFLOW_PORT,),
            reason="runs are tracked; password required",
        )
        yield Opening(
            name="ray-operator",
            sources=(Pods(namespace=KUBERAY_NAMESPACE),),
            targets=heads,
            ports=(RAY_PORTS["dashboard"],),
            reason="the operator asks the head for the state of its job; token required",
        )
    yield Opening(
        name="database",
        sources=(everything,),
        targets=(Addresses(name="private subnets", ranges=tuple(map(str, subnets_of(settings.network).private))),),
        ports=(database_port,),
        reason="MLflow's PostgreSQL",
    )
    alertmanager = Pods(namespace=MONITORING_NAMESPACE, labels={"app.kubernetes.io/name": "alertmanager"})
    with_a_role = (*teams, everything, alertmanager)
    yield Opening(
        name="https",
        sources=with_a_role,
        targets=(INTERNET,),
        ports=(443,),
        reason="AWS: S3, Secrets Manager, SNS; a head's autoscaler and MLflow's Job: the API server",
    )
    yield Opening(
        name="pod-identity",
        sources=with_a_role,
        targets=(POD_IDENTITY,),
        ports=(80,),
        reason="credentials of the pod's own role",
    )


def _control_plane(api_server: Addresses) -> Iterator[Opening]:
    """Not all of these talk to the API server, but each namespace's operator does, and has the rights it has by RBAC."""
    clients = (MONITORING_NAMESPACE, KUBERAY_NAMESPACE, KUEUE_NAMESPACE, GPU_NAMESPACE)
    yield Opening(
        name="api-server",
        sources=tuple(Pods(namespace=name) for name in clients),
        targets=(api_server,),
        ports=(443,),
        reason="operators, kube-state-metrics and feature discovery watch objects",
    )
    yield Opening(
        name="kueue-webhook",
        sources=(api_server,),
        targets=(Pods(namespace=KUEUE_NAMESPACE),),
        ports=(8082, 9443),
        reason="9443 admits jobs, 8082 is the API of who waits at which place",
    )
    yield Opening(
        name="prometheus-operator-webhook",
        sources=(api_server,),
        targets=(Pods(namespace=MONITORING_NAMESPACE),),
        ports=(10250,),
        reason="rules are checked before they are stored",
    )


def _metrics(settings: StackSettings) -> Iterator[Opening]:
    monitoring = Pods(namespace=MONITORING_NAMESPACE)
    yield Opening(
        name="monitoring",
        sources=(monitoring,),
        targets=(monitoring,),
        ports=(),
        reason="Prometheus, Alertmanager, Grafana and their operator among themselves",
    )
    yield Opening(
        name="node-metrics",
        sources=(PROMETHEUS,),
        targets=(Addresses(name="nodes", ranges=tuple(map(str, subnets_of(settings.network).private))),),
        ports=_NODE_PORTS,
        reason="node exporter, kubelet",
    )
    yield Opening(
        name="kube-system-metrics",
        sources=(PROMETHEUS,),
        targets=(Pods(namespace="kube-system"),),
        ports=_KUBE_SYSTEM_PORTS,
        reason="cluster-autoscaler, CoreDNS",
    )
    for name, namespace, port, reason in (
        ("kuberay-metrics", KUBERAY_NAMESPACE, 8080, "the operator"),
        ("kueue-metrics", KUEUE_NAMESPACE, 8443, "the queues"),
        ("gpu-metrics", GPU_NAMESPACE, 9400, "the DCGM exporter"),
    ):
        targets = (Pods(namespace=namespace),)
        yield Opening(name=name, sources=(PROMETHEUS,), targets=targets, ports=(port,), reason=reason)
    if settings.teams:
        yield Opening(
            name="ray-metrics",
            sources=(PROMETHEUS,),
            targets=tuple(Pods(namespace=team.name, labels=_RAY_NODE) for team in settings.teams),
            ports=tuple(RAY_PORTS[name] for name in ("metrics", "as-metrics", "dash-metrics")),
            reason="Ray and the trainer",
        )


def _policies(opening: Opening, ours: frozenset[str], marks: Mapping[str, str]) -> Iterator[Manifest]:
    """A policy for each end of the opening that lies in a namespace of ours."""
    ends: tuple[tuple[Direction, tuple[Peer, ...], tuple[Peer, ...]], ...] = (
        ("Egress", opening.sources, opening.targets),
        ("Ingress", opening.targets, opening.sources),
    )
    ports = [{"protocol": protocol, "port": port} for port in opening.ports for protocol in opening.protocols]
    for direction, here, there in ends:
        peers = [selector for peer in there for selector in _selectors(peer)]
        permitted = {"to" if direction == "Egress" else "from": peers, **({"ports": ports} if ports else {})}
        for pods in here:
            if isinstance(pods, Pods) and pods.namespace in ours:
                spec = {"policyTypes": [direction], direction.lower(): [permitted]}
                yield _policy(f"{opening.name}-{direction.lower()}", pods, marks, spec)


def _policy(name: str, pods: Pods, marks: Mapping[str, str], spec: Mapping[str, object]) -> Manifest:
    selector = {"podSelector": {"matchLabels": dict(pods.labels)} if pods.labels else {}}
    return api_object(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        name,
        namespace=pods.namespace,
        labels=marks,
        spec={**selector, **spec},
    )


def _selectors(peer: Peer) -> Iterator[Manifest]:
    if isinstance(peer, Addresses):
        excepted = {"except": list(peer.excepted)} if peer.excepted else {}
        yield from ({"ipBlock": {"cidr": cidr, **excepted}} for cidr in peer.ranges)
        return
    # One entry, not two: the pods of that namespace, and not those pods or that namespace.
    found: Manifest = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": peer.namespace}}}
    yield {**found, "podSelector": {"matchLabels": dict(peer.labels)}} if peer.labels else found
