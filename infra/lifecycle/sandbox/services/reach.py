"""Network policies for a sandbox's services: they have the addresses that on AWS are those of pods, of RDS and of S3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from infra.lifecycle.sandbox.services.facts import DATABASE_PORT, PROMETHEUS_PORT, Services
from infra.spec.cluster_names import MLFLOW_NAMESPACE, MONITORING_NAMESPACE, RAY_PORTS
from infra.spec.manifest import Manifest, api_object
from infra.spec.settings.stack import StackSettings

_NAME = "sandbox-services"
_OPERATED = ("dashboard", "metrics", "as-metrics", "dash-metrics")
"""Ports of Ray's nodes that KubeRay and Prometheus connect to."""


def service_policies(settings: StackSettings, services: Services) -> Iterator[Manifest]:
    """What the environment's policies allow between pods and the services, written for the services' address.

    Args:
        settings: the environment.
        services: the sandbox's services.
    """
    peers = [{"ipBlock": {"cidr": f"{services.address}/32"}}]
    yield _policy(MLFLOW_NAMESPACE, "Egress", {"to": peers, "ports": _ports([DATABASE_PORT])})
    yield _policy(MONITORING_NAMESPACE, "Egress", {"to": peers, "ports": _ports([PROMETHEUS_PORT])})
    for team in settings.teams:
        allowed = {"from": peers, "ports": _ports([RAY_PORTS[name] for name in _OPERATED])}
        yield _policy(team.name, "Ingress", allowed, labels={"ray.io/is-ray-node": "yes"})


def _ports(ports: Sequence[int]) -> list[Manifest]:
    return [{"protocol": "TCP", "port": port} for port in ports]


def _policy(
    namespace: str, direction: str, allowed: Mapping[str, Any], *, labels: Mapping[str, str] | None = None
) -> Manifest:
    selector = {"matchLabels": dict(labels)} if labels else {}
    spec = {"podSelector": selector, "policyTypes": [direction], direction.lower(): [dict(allowed)]}
    return api_object("networking.k8s.io/v1", "NetworkPolicy", _NAME, namespace=namespace, spec=spec)
