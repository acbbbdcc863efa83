"""Client of the registry API for one repository (OCI Distribution Specification 1.1): manifests, and blobs as streams."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlencode, urljoin, urlsplit

import urllib3

from infra.spec.errors import PlatformError, RefusedError, reason_of

_MANIFEST_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_CHUNK_BYTES = 1 << 20
_TIMEOUT = urllib3.Timeout(connect=20, read=120)


class Descriptor(NamedTuple):
    """What a manifest says of a blob or of another manifest; `size` in bytes."""

    digest: str
    size: int

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Descriptor:
        """A descriptor of a manifest."""
        return cls(str(entry["digest"]), int(entry["size"]))


@dataclass(frozen=True)
class Manifest:
    """A manifest or an index, with the bytes that its digest is of."""

    body: bytes
    media_type: str

    @property
    def digest(self) -> str:
        """The digest, e.g. sha256:…."""
        return f"sha256:{hashlib.sha256(self.body).hexdigest()}"

    @property
    def document(self) -> Mapping[str, Any]:
        """The content."""
        document: Mapping[str, Any] = json.loads(self.body)
        return document

    @property
    def children(self) -> tuple[Descriptor, ...]:
        """The manifests of an index; none of an image."""
        return tuple(map(Descriptor.read, self.document.get("manifests", ())))

    @property
    def layers(self) -> tuple[Descriptor, ...]:
        """The layers of an image, the base's first; none of an index."""
        return tuple(map(Descriptor.read, self.document.get("layers", ())))

    @property
    def blobs(self) -> tuple[Descriptor, ...]:
        """Configuration and layers of an image; none of an index."""
        config = self.document.get("config")
        return (*([Descriptor.read(config)] if config else ()), *self.layers)


def basic(user: str, password: str) -> str:
    """The Authorization header of a login."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


class RemoteRepository:
    """A repository of a registry.

    Args:
        url: scheme and host of the registry.
        name: name of the repository.
        authorization: Authorization header, which only this host gets; empty for a registry without a login.
    """

    def __init__(self, url: str, name: str, authorization: str = "") -> None:
        self._url = url
        self.name = name
        self._headers = {"Authorization": authorization} if authorization else {}
        self._pool = urllib3.PoolManager(timeout=_TIMEOUT, blocksize=_CHUNK_BYTES)

    def __str__(self) -> str:
        return f"{urlsplit(self._url).netloc}/{self.name}"

    def manifest(self, reference: str) -> Manifest | None:
        """The manifest of a tag or digest; None if the repository has none.

        Raises:
            PlatformError: the registry failed.
        """
        answer = self._ask("GET", f"manifests/{reference}", {"Accept": ", ".join(_MANIFEST_TYPES)})
        if answer.status == 404:
            return None
        self._require(answer, 200, f"manifest {reference}")
        return Manifest(answer.data, answer.headers["Content-Type"])

    def put_manifest(self, reference: str, manifest: Manifest) -> None:
        """Write a manifest under a tag or its digest.

        Raises:
            PlatformError: the registry failed.
        """
        headers = {"Content-Type": manifest.media_type}
        answer = self._ask("PUT", f"manifests/{reference}", headers, body=manifest.body)
        self._require(answer, 201, f"manifest {reference}")

    def has_blob(self, digest: str) -> bool:
        """Whether the repository has a blob.

        Raises:
            PlatformError: the registry failed.
        """
        answer = self._ask("HEAD", f"blobs/{digest}")
        if answer.status != 404:
            self._require(answer, 200, f"blob {digest}")
        return answer.status == 200

    @contextmanager
    def open_blob(self, digest: str) -> Iterator[Iterator[bytes]]:
        """The bytes of a blob, in chunks of at most 1 MiB.

        Raises:
            PlatformError: the registry failed.
            urllib3.exceptions.HTTPError: the connection failed, also while the stream is read.
        """
        # ECR answers with a redirect to S3, which refuses a second kind of login; urllib3 drops it for another host.
        answer = self._pool.request(
            "GET", self._address(f"blobs/{digest}"), headers=self._headers, preload_content=False
        )
        try:
            self._require(answer, 200, f"blob {digest}")
            yield answer.stream(_CHUNK_BYTES, decode_content=False)
        finally:
            answer.close()

    def upload(self, blob: Descriptor, body: Iterable[bytes]) -> None:
        """Upload a blob in one request after the one that starts it, as containerd does; the registry checks its digest.

        Raises:
            PlatformError: the registry failed.
            urllib3.exceptions.HTTPError: the connection failed.
        """
        started = self._pool.request("POST", self._address("blobs/uploads/"), headers=self._headers, retries=False)
        self._require(started, 202, f"upload of blob {blob.digest}")
        location = urljoin(self._address("blobs/uploads/"), started.headers["Location"])
        location += f"{'&' if urlsplit(location).query else '?'}{urlencode({'digest': blob.digest})}"
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(blob.size)}
        if urlsplit(location).netloc == urlsplit(self._url).netloc:
            headers |= self._headers
        done = self._pool.request("PUT", location, headers=headers, body=body, retries=False)
        self._require(done, 201, f"upload of blob {blob.digest}")

    def _address(self, path: str) -> str:
        return f"{self._url}/v2/{self.name}/{path}"

    def _ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, *, body: bytes | None = None
    ) -> urllib3.BaseHTTPResponse:
        """A short request, tried three times."""
        retries = urllib3.Retry(2, backoff_factor=0.5, allowed_methods=None)
        try:
            return self._pool.request(
                method, self._address(path), headers={**self._headers, **(headers or {})}, body=body, retries=retries
            )
        except urllib3.exceptions.HTTPError as error:
            raise PlatformError(f"registry {self}: {reason_of(error)}") from error

    def _require(self, answer: urllib3.BaseHTTPResponse, status: int, subject: str) -> None:
        if answer.status == status:
            return
        said = answer.data.decode(errors="replace").strip()[:300]
        message = f"registry {self}, {subject}: HTTP status {answer.status} instead of {status}{said and f': {said}'}"
        if answer.status in {401, 403}:
            raise RefusedError(message, remedy="use credentials that may read and write this repository")
        if answer.status == 404 and "NAME_UNKNOWN" in said:
            raise RefusedError(message, remedy="create the repository: `make up` of its environment does")
        raise PlatformError(message)
