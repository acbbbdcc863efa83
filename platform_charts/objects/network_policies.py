"""Network policies: default deny in the platform's namespaces, and the allowed traffic in the table `allow_rules`.

The VPC CNI enforces them. No rule is needed for the kubelet's probes and port forwarding, which come from the node, for
NFS, which the EFS driver mounts on the node, and for EFA, which bypasses the kernel. Policies do not apply to pods on the
host network (device plugins, node exporter). No pod may reach the instance metadata service at 169.254.169.254.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from infra.spec.cluster_names import (
    DATA_NAMESPACE,
    GPU_NAMESPACE,
    KUBERAY_NAMESPACE,
    KUEUE_NAMESPACE,
    MLFLOW_NAMESPACE,
    MONITORING_NAMESPACE,
    RAY_PORTS,
    REAPER_NAMESPACE,
    SSO_NAMESPACE,
)
from infra.spec.manifest import Manifest, api_object, labels
from infra.spec.release import ReleaseManifest
from infra.spec.settings.logs import url_port
from infra.spec.settings.network import subnets_of
from infra.spec.settings.stack import StackSettings
from infra.spec.uis import SHARED_UIS
from platform_charts.objects.mlflow import PORT as MLFLOW_PORT
from platform_charts.objects.mlflow import SERVER as MLFLOW_SERVER
from platform_charts.objects.namespaces import platform_namespaces
from platform_charts.objects.single_sign_on import PORT as SSO_PORT

Direction = Literal["Ingress", "Egress"]


@dataclass(frozen=True, kw_only=True)
class Pods:
    """Pods of one namespace with these labels; without labels all of its pods."""

    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        labels_text = ", ".join(f"{key}={value}" for key, value in self.labels.items())
        return f"{self.namespace} ({labels_text})" if labels_text else self.namespace


@dataclass(frozen=True, kw_only=True)
class IpBlocks:
    """Address ranges.

    Attributes:
        name: description of the addresses.
        ranges: CIDR blocks.
        exceptions: CIDR blocks to exclude from each range.
    """

    name: str
    ranges: tuple[str, ...]
    exceptions: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


Peer = Pods | IpBlocks


@dataclass(frozen=True, kw_only=True)
class AllowRule:
    """One row of the table: each source may connect to each target.

    Attributes:
        name: prefix of its policies' names.
        sources: peers that open connections.
        targets: peers that accept connections.
        ports: ports of the targets; empty for all.
        protocols: protocols of these ports.
        reason: purpose of the traffic.
    """

    name: str
    sources: tuple[Peer, ...]
    targets: tuple[Peer, ...]
    ports: tuple[int, ...]
    protocols: tuple[Literal["TCP", "UDP"], ...] = ("TCP",)
    reason: str


DNS = Pods(namespace="kube-system", labels={"k8s-app": "kube-dns"})
POD_IDENTITY = IpBlocks(name="Pod Identity agent", ranges=("169.254.170.23/32",))
INTERNET = IpBlocks(name="any address", ranges=("0.0.0.0/0",), exceptions=("169.254.0.0/16",))
"""Endpoints of AWS services have no fixed addresses. Some are in the private subnets, as the API server's are (docs/SECURITY.md)."""

PROMETHEUS = Pods(namespace=MONITORING_NAMESPACE, labels={"app.kubernetes.io/name": "prometheus"})
LOG_SHIPPER = Pods(namespace=GPU_NAMESPACE, labels={"app.kubernetes.io/name": "fluent-bit"})
MLFLOW = Pods(namespace=MLFLOW_NAMESPACE, labels={"app.kubernetes.io/name": MLFLOW_SERVER})

_RAY_NODE = {"ray.io/is-ray-node": "yes"}
_RAY_HEAD = {"ray.io/node-type": "head"}
_NODE_PORTS = (9100, 10250)
_KUBE_SYSTEM_PORTS = (8085, 9153)


def allow_rules(
    settings: StackSettings, *, database_port: int, api_server_cidrs: Sequence[str]
) -> tuple[AllowRule, ...]:
    """The table of allowed traffic.

    Args:
        settings: the environment.
        database_port: port of MLflow's database.
        api_server_cidrs: ranges of the API server's network interfaces.
    """
    # Egress policies see the service's cluster IP, before its translation to the API server's address.
    service = f"{settings.network.service_cidr[1]}/32"
    api_server = IpBlocks(name="API server", ranges=(*api_server_cidrs, service))
    return (
        *_everywhere(settings),
        *(one for team in settings.teams for one in _inside_a_team(team.name)),
        *_between_namespaces(settings, database_port),
        *(_single_sign_on(settings, api_server) if settings.single_sign_on is not None else ()),
        *_control_plane(api_server),
        *_metrics(settings),
    )


def network_policies(
    settings: StackSettings, release: ReleaseManifest, table: Sequence[AllowRule]
) -> tuple[Manifest, ...]:
    """Default deny in every namespace of the platform, and the table's rules at both ends of the traffic."""
    ours = platform_namespaces(settings)
    object_labels = labels("network", version=release.platform)
    deny = [
        _policy("default-deny", Pods(namespace=name), object_labels, {"policyTypes": ["Ingress", "Egress"]})
        for name in ours
    ]
    allow = [policy for rule in table for policy in _policies(rule, frozenset(ours), object_labels)]
    return (*deny, *allow)


def markdown_table(table: Sequence[AllowRule]) -> str:
    """The table in Markdown, for docs/SECURITY.md."""
    rows = [
        (
            rule.name,
            "<br>".join(map(str, rule.sources)),
            "<br>".join(map(str, rule.targets)),
            ", ".join(map(str, rule.ports)) or "all",
            rule.reason,
        )
        for rule in table
    ]
    lines = (("rule", "from", "to", "ports", "reason"), ("---",) * 5, *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _everywhere(settings: StackSettings) -> Iterator[AllowRule]:
    yield AllowRule(
        name="dns",
        sources=tuple(Pods(namespace=name) for name in platform_namespaces(settings)),
        targets=(DNS,),
        ports=(53,),
        protocols=("UDP", "TCP"),
        reason="name resolution",
    )


def _inside_a_team(team: str) -> Iterator[AllowRule]:
    """A team's jobs may reach each other, because policies cannot select pods of the same job."""
    nodes = Pods(namespace=team, labels=_RAY_NODE)
    yield AllowRule(
        name="ray",
        sources=(nodes,),
        targets=(nodes,),
        ports=(),
        reason="Ray and NCCL use ephemeral ports",
    )
    yield AllowRule(
        name="ray-submit",
        sources=(Pods(namespace=team),),
        targets=(Pods(namespace=team, labels=_RAY_HEAD),),
        ports=(RAY_PORTS["dashboard"],),
        reason="a RayJob's submitter submits the job to the head; token required",
    )


def _between_namespaces(settings: StackSettings, database_port: int) -> Iterator[AllowRule]:
    teams = tuple(Pods(namespace=team.name) for team in settings.teams)
    heads = tuple(Pods(namespace=team.name, labels=_RAY_HEAD) for team in settings.teams)
    mlflow_pods = Pods(namespace=MLFLOW_NAMESPACE)
    if teams:
        yield AllowRule(
            name="mlflow",
            sources=teams,
            targets=(MLFLOW,),
            ports=(MLFLOW_PORT,),
            reason="experiment tracking; password required",
        )
        yield AllowRule(
            name="ray-operator",
            sources=(Pods(namespace=KUBERAY_NAMESPACE),),
            targets=heads,
            ports=(RAY_PORTS["dashboard"],),
            reason="KubeRay polls the job's status; token required",
        )
    yield AllowRule(
        name="database",
        sources=(mlflow_pods,),
        targets=(IpBlocks(name="private subnets", ranges=tuple(map(str, subnets_of(settings.network).private))),),
        ports=(database_port,),
        reason="MLflow's PostgreSQL",
    )
    alertmanager = Pods(namespace=MONITORING_NAMESPACE, labels={"app.kubernetes.io/name": "alertmanager"})
    shipper = (LOG_SHIPPER,) if settings.logs.destination == "cloudwatch" else ()
    reaper = () if settings.reaper is None else (Pods(namespace=REAPER_NAMESPACE),)
    with_iam_role = (*teams, mlflow_pods, alertmanager, *shipper, Pods(namespace=DATA_NAMESPACE), *reaper)
    yield AllowRule(
        name="https",
        sources=with_iam_role,
        targets=(INTERNET,),
        ports=(443,),
        reason="AWS: S3, Secrets Manager, SNS, CloudWatch; API server for MLflow's Job and the Jobs of schedules",
    )
    yield AllowRule(
        name="pod-identity",
        sources=with_iam_role,
        targets=(POD_IDENTITY,),
        ports=(80,),
        reason="credentials of the pod's IAM role",
    )
    if settings.logs.loki_url is not None:
        yield AllowRule(
            name="loki",
            sources=(LOG_SHIPPER,),
            targets=(INTERNET,),
            ports=(url_port(settings.logs.loki_url),),
            reason="logs, to the server in the settings",
        )


def _single_sign_on(settings: StackSettings, api_server: IpBlocks) -> Iterator[AllowRule]:
    """The load balancer's addresses change, and are in its subnets; the proxy believes nothing but signed tokens."""
    assert settings.single_sign_on is not None
    proxy, subnets = (Pods(namespace=SSO_NAMESPACE),), subnets_of(settings.network)
    name, ranges = (
        ("public", subnets.public) if settings.single_sign_on.internet_facing else ("private", subnets.private)
    )
    load_balancer = IpBlocks(name=f"{name} subnets", ranges=tuple(map(str, ranges)))
    grafana = Pods(namespace=MONITORING_NAMESPACE, labels=SHARED_UIS["grafana"].labels)
    for rule, sources, targets, port, reason in (
        ("sso", (load_balancer,), proxy, SSO_PORT, "the load balancer; a token that it signed is required"),
        ("sso-mlflow", proxy, (MLFLOW,), MLFLOW_PORT, "people who are signed in; a team's password is required"),
        ("sso-grafana", proxy, (grafana,), SHARED_UIS["grafana"].port, "people who are signed in, as viewers"),
        ("sso-keys", proxy, (INTERNET,), 443, "public keys of the load balancer's tokens, from AWS"),
        ("sso-api-server", proxy, (api_server,), 443, "the proxy reads the logins of teams"),
    ):
        yield AllowRule(name=rule, sources=sources, targets=targets, ports=(port,), reason=reason)


def _control_plane(api_server: IpBlocks) -> Iterator[AllowRule]:
    """Whole namespaces, although only their operators call the API server; RBAC limits what pods may do there."""
    clients = (MONITORING_NAMESPACE, KUBERAY_NAMESPACE, KUEUE_NAMESPACE, GPU_NAMESPACE)
    yield AllowRule(
        name="api-server",
        sources=tuple(Pods(namespace=name) for name in clients),
        targets=(api_server,),
        ports=(443,),
        reason="operators, kube-state-metrics and feature discovery watch objects; job-progress writes columns, job-recorder records",
    )
    yield AllowRule(
        name="kueue-webhook",
        sources=(api_server,),
        targets=(Pods(namespace=KUEUE_NAMESPACE),),
        ports=(8082, 9443),
        reason="9443 is the admission webhook, 8082 the visibility API (queue positions)",
    )
    yield AllowRule(
        name="prometheus-operator-webhook",
        sources=(api_server,),
        targets=(Pods(namespace=MONITORING_NAMESPACE),),
        ports=(10250,),
        reason="validation of Prometheus rules",
    )


def _metrics(settings: StackSettings) -> Iterator[AllowRule]:
    monitoring = Pods(namespace=MONITORING_NAMESPACE)
    yield AllowRule(
        name="monitoring",
        sources=(monitoring,),
        targets=(monitoring,),
        ports=(),
        reason="traffic among Prometheus, Alertmanager, Grafana, their operator and job-progress",
    )
    yield AllowRule(
        name="node-metrics",
        sources=(PROMETHEUS,),
        targets=(IpBlocks(name="nodes", ranges=tuple(map(str, subnets_of(settings.network).private))),),
        ports=_NODE_PORTS,
        reason="node exporter, kubelet",
    )
    yield AllowRule(
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
        ("log-shipper-metrics", GPU_NAMESPACE, 2020, "Fluent Bit"),
    ):
        targets = (Pods(namespace=namespace),)
        yield AllowRule(name=name, sources=(PROMETHEUS,), targets=targets, ports=(port,), reason=reason)
    if settings.teams:
        yield AllowRule(
            name="ray-metrics",
            sources=(PROMETHEUS,),
            targets=tuple(Pods(namespace=team.name, labels=_RAY_NODE) for team in settings.teams),
            ports=tuple(RAY_PORTS[name] for name in ("metrics", "as-metrics", "dash-metrics")),
            reason="Ray and the trainer",
        )


def _policies(rule: AllowRule, ours: frozenset[str], object_labels: Mapping[str, str]) -> Iterator[Manifest]:
    """A policy for each end of the traffic in a namespace of the platform."""
    ends: tuple[tuple[Direction, tuple[Peer, ...], tuple[Peer, ...]], ...] = (
        ("Egress", rule.sources, rule.targets),
        ("Ingress", rule.targets, rule.sources),
    )
    ports = [{"protocol": protocol, "port": port} for port in rule.ports for protocol in rule.protocols]
    for direction, selected, others in ends:
        peers = [selector for peer in others for selector in _selectors(peer)]
        allowed = {"to" if direction == "Egress" else "from": peers, **({"ports": ports} if ports else {})}
        for pods in selected:
            if isinstance(pods, Pods) and pods.namespace in ours:
                spec = {"policyTypes": [direction], direction.lower(): [allowed]}
                yield _policy(f"{rule.name}-{direction.lower()}", pods, object_labels, spec)


def _policy(name: str, pods: Pods, object_labels: Mapping[str, str], spec: Mapping[str, object]) -> Manifest:
    selector = {"podSelector": {"matchLabels": dict(pods.labels)} if pods.labels else {}}
    return api_object(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        name,
        namespace=pods.namespace,
        labels=object_labels,
        spec={**selector, **spec},
    )


def _selectors(peer: Peer) -> Iterator[Manifest]:
    if isinstance(peer, IpBlocks):
        exceptions = {"except": list(peer.exceptions)} if peer.exceptions else {}
        yield from ({"ipBlock": {"cidr": cidr, **exceptions}} for cidr in peer.ranges)
        return
    # Both selectors in one entry select their intersection; two entries would select the union.
    namespace: Manifest = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": peer.namespace}}}
    yield {**namespace, "podSelector": {"matchLabels": dict(peer.labels)}} if peer.labels else namespace
