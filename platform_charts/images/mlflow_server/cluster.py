"""Secrets of the cluster: written once, with random values, and never changed by us again."""

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
    """43 characters that go anywhere, with 256 bits of randomness."""
    return secrets.token_urlsafe(_PASSWORD_BYTES)


class Secrets(Protocol):
    """Where the passwords lie."""

    def ensure(self, namespace: str, name: str, wanted: Mapping[str, str]) -> dict[str, str]:
        """See that a Secret has these keys.

        Args:
            namespace: namespace of the Secret.
            name: its name.
            wanted: what goes under a key that is not there; a key that is there keeps its value.

        Returns:
            what the Secret holds afterwards.
        """
        ...


class KubernetesSecrets:
    """The Secrets of a cluster; satisfies `Secrets`.

    Args:
        api: client of the API server, allowed to get, create and patch these Secrets.
    """

    def __init__(self, api: client.ApiClient) -> None:
        self._core = client.CoreV1Api(api)

    @classmethod
    def of_this_pod(cls) -> KubernetesSecrets:
        """Those of the cluster that this pod runs in, with the rights of its service account."""
        config.load_incluster_config()
        return cls(client.ApiClient())

    def ensure(self, namespace: str, name: str, wanted: Mapping[str, str]) -> dict[str, str]:
        """See that a Secret has these keys; see `Secrets.ensure`.

        Raises:
            ApiException: the API server refuses, e.g. because there is no such namespace.
        """
        try:
            found = _decoded(self._core.read_namespaced_secret(name, namespace))
        except ApiException as error:
            if error.status != _NOT_FOUND:
                raise
            metadata = client.V1ObjectMeta(name=name, labels={"app.kubernetes.io/managed-by": "mlflow-server"})
            secret = client.V1Secret(metadata=metadata, string_data=dict(wanted))
            self._core.create_namespaced_secret(namespace, secret)
            return dict(wanted)
        absent = {key: value for key, value in wanted.items() if key not in found}
        if absent:
            self._core.patch_namespaced_secret(name, namespace, {"stringData": absent})
        return {**found, **absent}


def _decoded(secret: Any) -> dict[str, str]:  # noqa: ANN401 - the client has no types
    return {key: base64.b64decode(value).decode() for key, value in (secret.data or {}).items()}
