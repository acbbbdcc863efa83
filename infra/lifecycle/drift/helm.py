"""The objects of the installed Helm releases, as Helm keeps them in its Secrets."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator

import yaml

from infra.kube.api import KubernetesApi
from infra.spec.manifest import Manifest

_TYPE = "helm.sh/release.v1"
_DEPLOYED = "owner=helm,status=deployed"


def installed_objects(api: KubernetesApi) -> Iterator[Manifest]:
    """Every object of every installed release, without hooks, which Helm runs once, and the CRDs of `crds/`.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    for secret in api.items("v1", "Secret", labels=_DEPLOYED):
        if secret.get("type") == _TYPE:
            yield from _objects(secret)


def _objects(secret: Manifest) -> Iterator[Manifest]:
    # Helm compresses and encodes the release, and Kubernetes encodes a Secret's data (helm, pkg/storage/driver/util.go).
    release = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(secret["data"]["release"]))))
    for document in yaml.load_all(release["manifest"], Loader=yaml.CSafeLoader):
        if document:
            # Namespaced objects of a chart without a namespace are in that of the release.
            metadata = {"namespace": release["namespace"], **document["metadata"]}
            yield {**document, "metadata": metadata}
