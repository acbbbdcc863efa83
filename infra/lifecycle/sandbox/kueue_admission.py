"""What Kueue's chart brings beside its pods, for a Kueue that is a process on loopback.

That is its configuration, its admission webhooks, and the conversion of its objects. The API server finds it as on a
cluster, by the Service of the webhooks, which is here another name for this machine; so Kueue makes and injects its
certificates itself, as it does there.
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
"""Where Kueue puts its certificate and key; it fills it, and does not make it."""

_CONVERTED = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
"""Kinds of which Kueue serves two versions (sigs.k8s.io/kueue, pkg/util/cert)."""


@dataclass(frozen=True)
class _Kind:
    """A kind whose objects pass through Kueue (sigs.k8s.io/kueue, config/components/webhook/manifests.yaml).

    Attributes:
        api_version: of the kind.
        name: in the webhooks' paths.
        resources: what is validated.
        is_mutated: whether a webhook sets its defaults, too.
    """

    api_version: str
    name: str
    resources: tuple[str, ...]
    is_mutated: bool = True

    @property
    def is_job(self) -> bool:
        """Whether it is somebody else's: only the teams' namespaces are looked at then."""
        return self.api_version != KUEUE_API

    def path(self, verb: str) -> str:
        """Path of its webhook."""
        group, _, version = self.api_version.partition("/")
        return f"/{verb}-{group.replace('.', '-')}-{version}-{self.name}"


_KINDS = (
    _Kind("batch/v1", "job", ("jobs",)),
    _Kind("ray.io/v1", "rayjob", ("rayjobs",)),
    _Kind(KUEUE_API, "clusterqueue", ("clusterqueues",)),
    _Kind(KUEUE_API, "resourceflavor", ("resourceflavors",)),
    _Kind(KUEUE_API, "workload", ("workloads", "workloads/status")),
    _Kind(KUEUE_API, "cohort", ("cohorts",), is_mutated=False),
)
"""Those of the frameworks that the configuration names, and Kueue's own."""


def configuration(*, webhook_port: int, health_port: int, certificates: Path) -> Manifest:
    """The chart's configuration for a single instance on loopback.

    Without the visibility API: Kueue writes that server's certificate into a folder of the root of the file system.
    """
    return {
        **kueue_configuration(),
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
    """The objects that lead the API server to Kueue, in the order in which they are applied."""
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
    """The part of a definition that the chart's have and the project's plain ones have not."""
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
