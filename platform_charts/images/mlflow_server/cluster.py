"""Kubernetes Secrets with random values, which are written once and never changed."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from typing import Any, Protocol

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

_NOT_FOUND = 404
_PASSWORD_BYTES = 32


def random_password() -> str:
    """43 URL-safe characters with 256 bits of randomness."""
    return secrets.token_urlsafe(_PASSWORD_BYTES)


class Secrets(Protocol):
    """A store of Secrets."""

    def ensure(self, namespace: str, name: str, wanted: Mapping[str, str]) -> dict[str, str]:
        """Create a Secret or add missing keys.

        Args:
            namespace: namespace of the Secret.
            name: name of the Secret.
            wanted: values of missing keys; existing keys keep their values.

        Returns:
            the Secret's data afterwards.
        """
        ...


class KubernetesSecrets:
    """The Secrets of a cluster; implements `Secrets`.

    Args:
        api: client of the API server, allowed to get, create and patch these Secrets.
    """

    def __init__(self, api: client.ApiClient) -> None:
        self._core = client.CoreV1Api(api)

    @classmethod
    def of_this_pod(cls) -> KubernetesSecrets:
        """The Secrets of this pod's cluster, with the permissions of its service account."""
        config.load_incluster_config()
        return cls(client.ApiClient())

    def ensure(self, namespace: str, name: str, wanted: Mapping[str, str]) -> dict[str, str]:
        """Create a Secret or add missing keys; see `Secrets.ensure`.

        Raises:
            ApiException: the API server rejects the request, e.g. because the namespace does not exist.
        """
        try:
            data = _decoded(self._core.read_namespaced_secret(name, namespace))
        except ApiException as error:
            if error.status != _NOT_FOUND:
                raise
            metadata = client.V1ObjectMeta(name=name, labels={"app.kubernetes.io/managed-by": "mlflow-server"})
            secret = client.V1Secret(metadata=metadata, string_data=dict(wanted))
            self._core.create_namespaced_secret(namespace, secret)
            return dict(wanted)
        missing = {key: value for key, value in wanted.items() if key not in data}
        if missing:
            self._core.patch_namespaced_secret(name, namespace, {"stringData": missing})
        return {**data, **missing}


def _decoded(secret: Any) -> dict[str, str]:  # noqa: ANN401 - the client has no types
    return {key: base64.b64decode(value).decode() for key, value in (secret.data or {}).items()}
