"""The objects of Kueue's chart other than its pods, for a Kueue that runs as a process on loopback.

These are its configuration, its admission webhooks and the conversion webhooks of its CRDs. As in a cluster, the API server
reaches them by a Service, here an ExternalName Service that resolves to localhost, and Kueue creates and injects its own
certificates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.spec.cluster_names import KUEUE_API, KUEUE_NAMESPACE
from infra.spec.manifest import Manifest
from platform_charts.charts.kueue import kueue_configuration

SERVICE = "kueue-webhook-service"
SECRET: Manifest = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "kueue-webhook-server-cert", "namespace": KUEUE_NAMESPACE},
}
"""Kueue writes its certificate and key into this Secret, and expects it to exist."""

_CONVERTED = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
"""CRDs with a conversion webhook (sigs.k8s.io/kueue, pkg/util/cert)."""


@dataclass(frozen=True)
class _Kind:
    """A kind with an admission webhook of Kueue (sigs.k8s.io/kueue, config/components/webhook/manifests.yaml).

    Attributes:
        api_version: group and version of the kind.
        name: its name in webhook paths.
        resources: resources to validate.
        is_mutated: whether a mutating webhook sets defaults.
    """

    api_version: str
    name: str
    resources: tuple[str, ...]
    is_mutated: bool = True

    @property
    def is_job(self) -> bool:
        """Whether it is a job of another API group, which Kueue manages in the teams' namespaces only."""
        return self.api_version != KUEUE_API

    def path(self, verb: str) -> str:
        """Path of its webhook for `mutate` or `validate`."""
        group, _, version = self.api_version.partition("/")
        return f"/{verb}-{group.replace('.', '-')}-{version}-{self.name}"


_KINDS = (
    _Kind("batch/v1", "job", ("jobs",)),
    _Kind("ray.io/v1", "rayjob", ("rayjobs",)),
    _Kind("ray.io/v1", "raycluster", ("rayclusters",)),
    _Kind(KUEUE_API, "clusterqueue", ("clusterqueues",)),
    _Kind(KUEUE_API, "resourceflavor", ("resourceflavors",)),
    _Kind(KUEUE_API, "workload", ("workloads", "workloads/status")),
    _Kind(KUEUE_API, "cohort", ("cohorts",), is_mutated=False),
)
"""Kinds of the configuration's job frameworks, and Kueue's own."""


def configuration(*, base: Manifest, webhook_port: int, health_port: int, certificates: Path) -> Manifest:
    """The chart's configuration, changed to a single instance on loopback.

    The visibility API is off: Kueue writes its certificate into a folder at the root of the file system.

    Args:
        base: the chart's configuration.
        webhook_port: port of the webhooks.
        health_port: port of the probes.
        certificates: folder of the webhooks' certificate.
    """
    return {
        **base,
        "namespace": KUEUE_NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health_port}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhook_port, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {
            "enable": True,
            "webhookServiceName": SERVICE,
            "webhookSecretName": SECRET["metadata"]["name"],
        },
        "featureGates": {"VisibilityOnDemand": False},
    }


def admission(*, webhook_port: int) -> tuple[Manifest, ...]:
    """The objects by which the API server reaches Kueue, in order of application."""
    return (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KUEUE_NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": KUEUE_NAMESPACE},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        SECRET,
        *(_conversion(plural, webhook_port) for plural in _CONVERTED),
        _configuration_of("Mutating", "mutate", webhook_port),
        _configuration_of("Validating", "validate", webhook_port),
    )


def _conversion(plural: str, port: int) -> Manifest:
    """The conversion webhook of a CRD, which the chart adds to the plain CRDs of the project."""
    webhook = {"clientConfig": _client("/convert", port), "conversionReviewVersions": ["v1"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.kueue.x-k8s.io"},
        "spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}},
    }


def _configuration_of(title: str, verb: str, port: int) -> Manifest:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{title}WebhookConfiguration",
        "metadata": {"name": f"kueue-{title.lower()}-webhook-configuration"},
        "webhooks": list(_webhooks(verb, port)),
    }


def _webhooks(verb: str, port: int) -> Iterator[dict[str, Any]]:
    for kind in _KINDS:
        is_validated = verb == "validate"
        if not (is_validated or kind.is_mutated):
            continue
        group, _, version = kind.api_version.partition("/")
        rule = {
            "apiGroups": [group],
            "apiVersions": [version],
            "operations": ["CREATE", "UPDATE"] if is_validated else ["CREATE"],
            "resources": list(kind.resources if is_validated else kind.resources[:1]),
        }
        yield {
            "name": f"{verb[0]}{kind.name}.kb.io",
            "admissionReviewVersions": ["v1"],
            "clientConfig": _client(kind.path(verb), port),
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "rules": [rule],
            **({"namespaceSelector": kueue_configuration()["managedJobsNamespaceSelector"]} if kind.is_job else {}),
        }


def _client(path: str, port: int) -> dict[str, Any]:
    return {"service": {"name": SERVICE, "namespace": KUEUE_NAMESPACE, "path": path, "port": port}}
