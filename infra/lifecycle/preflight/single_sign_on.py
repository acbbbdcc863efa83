"""What single sign-on needs of a cluster and the stack does not make."""

from __future__ import annotations

from collections.abc import Iterator

from infra.kube.api import KubernetesApi
from infra.spec.cluster_names import SSO_CLIENT_SECRET, SSO_NAMESPACE
from infra.spec.manifest import Manifest, api_object
from infra.spec.settings.stack import StackSettings

_GUIDE = "docs/SINGLE_SIGN_ON.md"
_KEYS = ("clientID", "clientSecret")


def single_sign_on_notes(settings: StackSettings, api: KubernetesApi | None) -> Iterator[str]:
    """What is missing, in words; nothing where `single_sign_on` is not set.

    Args:
        settings: the environment.
        api: its API server; None before there is a cluster, which then lacks everything.

    Raises:
        PlatformError: the API server does not answer.
    """
    if settings.single_sign_on is None:
        return

    def read(manifest: Manifest) -> Manifest | None:
        return None if api is None else api.read(manifest)

    if read(api_object("networking.k8s.io/v1", "IngressClass", "alb")) is None:
        yield (
            "single_sign_on has no load balancer until the cluster has an IngressClass alb: install the AWS Load Balancer "
            f"Controller ({_GUIDE})"
        )
    secret = read(api_object("v1", "Secret", SSO_CLIENT_SECRET, namespace=SSO_NAMESPACE))
    missing = [key for key in _KEYS if key not in ((secret or {}).get("data") or {})]
    if missing:
        yield (
            f"single_sign_on has no load balancer until the Secret {SSO_NAMESPACE}/{SSO_CLIENT_SECRET} has "
            f"{' and '.join(missing)}: create it ({_GUIDE})"
        )
