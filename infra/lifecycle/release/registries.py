"""Look up versions and digests in chart repositories and image registries.

A source raises `NotFoundError` with the reason if it has no answer; nothing is guessed. `helm` and `oras` download charts
too, but each is another binary to install.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import urlencode, urljoin, urlsplit

import urllib3
from botocore.exceptions import BotoCoreError, ClientError

from infra.lifecycle.account.aws import Client
from infra.lifecycle.release.numbering import newest_release
from infra.spec.errors import NoAnswerError, NotFoundError, reason_of
from infra.spec.manifest_yaml import read_manifests
from platform_charts.charts.archives import Download

HELM_LAYER = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
"""Media type of the chart archive in an OCI registry (Helm, "Use OCI-based registries")."""

_API_HOSTS = {"docker.io": "registry-1.docker.io"}
"""Registries whose API host differs from the host in image names."""

_ECR = re.compile(r"^\d{12}\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com$")
"""A private ECR registry: it requires a login even for AWS's own images, which every account may pull."""

_NEXT_PAGE = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')

_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_PAGE_SIZE = 1000
_MAX_PAGES = 200
"""Limits a registry that never ends its list of tags."""


class Answer(NamedTuple):
    """A value, and the address it came from."""

    value: str
    source: str


class ChartAnswer(NamedTuple):
    """A chart in its repository."""

    version: str
    sha256: str
    source: str


class ChartDetails(NamedTuple):
    """Fields of a chart's Chart.yaml; empty if it has none."""

    app_version: str
    kubernetes: str


class ChartSource(Protocol):
    """Looks up Helm charts."""

    def chart(self, repository: str, name: str, version: str | None) -> ChartAnswer:
        """The chart at `version`; None means the newest release."""
        ...

    def versions(self, repository: str, name: str) -> tuple[str, ...]:
        """Every version of the chart, in no order."""
        ...

    def details(self, repository: str, name: str, version: str) -> ChartDetails:
        """The chart's appVersion and kubeVersion."""
        ...


class ImageSource(Protocol):
    """Looks up container images."""

    def digest(self, repository: str, tag: str) -> Answer:
        """The digest the tag points to, e.g. sha256:…."""
        ...

    def tags(self, repository: str) -> tuple[str, ...]:
        """Every tag, in no order."""
        ...


class Registries:
    """HTTP client for chart repositories and for OCI registries of charts and images.

    Args:
        plain_hosts: registries to access without TLS, as host:port.
        timeout_s: timeout of a request in seconds; each request is tried three times.
        login: base64 of `user:password` by registry host, for registries that require a login.
    """

    def __init__(
        self,
        *,
        plain_hosts: Iterable[str] = (),
        timeout_s: float = 20,
        login: Callable[[str], str | None] = lambda _host: None,
    ) -> None:
        self._plain_hosts = frozenset(plain_hosts)
        self._login = login
        self._indexes: dict[str, dict[str, Any]] = {}
        self._pool = urllib3.PoolManager(timeout=timeout_s, retries=urllib3.Retry(2, backoff_factor=0.5))

    def chart(self, repository: str, name: str, version: str | None) -> ChartAnswer:
        """The chart from the repository's index or, for oci:// repositories, from the registry."""
        if repository.startswith("oci://"):
            found, layer, url = self._oci_chart(repository.removeprefix("oci://"), name, version)
            return ChartAnswer(found, layer.removeprefix("sha256:"), url)
        url, releases = self._index(repository, name)
        chosen = version or newest_release(releases)
        if chosen is None:
            raise NotFoundError(f"{url} has no release of chart {name}")
        digest = releases.get(chosen, releases.get(f"v{chosen}", {})).get("digest")
        if not digest:
            raise NotFoundError(f"{url} has no digest of chart {name} {chosen}")
        return ChartAnswer(chosen, str(digest).removeprefix("sha256:"), url)

    def versions(self, repository: str, name: str) -> tuple[str, ...]:
        """See `ChartSource.versions`."""
        if repository.startswith("oci://"):
            tags = self.tags(f"{repository.removeprefix('oci://').rstrip('/')}/{name}")
            return tuple(tag.replace("_", "+") for tag in tags)
        return tuple(self._index(repository, name)[1])

    def details(self, repository: str, name: str, version: str) -> ChartDetails:
        """See `ChartSource.details`: from the index, or from the chart's configuration in the registry."""
        if repository.startswith("oci://"):
            base = f"{repository.removeprefix('oci://').rstrip('/')}/{name}"
            _, response = self._manifest(base, version.replace("+", "_"))
            digest = response.json()["config"]["digest"]
            chart = self._get(f"{self._base(base)}/blobs/{digest}").json()
        else:
            url, releases = self._index(repository, name)
            if version not in releases:
                raise NotFoundError(f"{url} has no chart {name} {version}")
            chart = releases[version]
        return ChartDetails(str(chart.get("appVersion") or ""), str(chart.get("kubeVersion") or ""))

    def tags(self, repository: str) -> tuple[str, ...]:
        """See `ImageSource.tags`; follows the registry's pages (OCI distribution, "Listing Tags")."""
        first = f"{self._base(repository)}/tags/list?n={_PAGE_SIZE}"
        url = first
        found: list[str] = []
        for _ in range(_MAX_PAGES):
            response = self._get(url)
            found += response.json().get("tags") or ()
            link = _NEXT_PAGE.search(response.headers.get("Link", ""))
            if link is None:
                return tuple(found)
            url = urljoin(url, link[1])
        raise NoAnswerError(f"{first}: the list of tags does not end after {_MAX_PAGES} pages")

    def archive(self, repository: str, name: str, version: str) -> Download:
        """Download the chart's archive from the URL in the index, or from the registry."""
        if repository.startswith("oci://"):
            base = repository.removeprefix("oci://").rstrip("/")
            _, digest, _ = self._oci_chart(base, name, version)
            url = f"{self._base(f'{base}/{name}')}/blobs/{digest}"
        else:
            index, releases = self._index(repository, name)
            addresses = releases.get(version, releases.get(f"v{version}", {})).get("urls")
            if not addresses:
                raise NotFoundError(f"{index} has no archive of chart {name} {version}")
            url = urljoin(index, str(addresses[0]))
        return Download(self._get(url).data, url)

    def digest(self, repository: str, tag: str) -> Answer:
        """The digest of an image or its index, computed from the manifest; must match Docker-Content-Digest."""
        url, response = self._manifest(repository, tag)
        digest = f"sha256:{hashlib.sha256(response.data).hexdigest()}"
        claimed = response.headers.get("Docker-Content-Digest", digest)
        if claimed != digest:
            raise NotFoundError(f"{url}: Docker-Content-Digest is {claimed}, the manifest's digest is {digest}")
        return Answer(digest, url)

    def _index(self, repository: str, name: str) -> tuple[str, dict[str, dict[str, Any]]]:
        """URL of a repository's index, and the chart's entries by version."""
        url = f"{repository.rstrip('/')}/index.yaml"
        if url not in self._indexes:  # the index of kube-prometheus-stack's repository has megabytes
            [self._indexes[url]] = read_manifests(self._get(url).data)
        index = self._indexes[url]
        return url, {str(one["version"]): one for one in index.get("entries", {}).get(name, ())}

    def _oci_chart(self, repository: str, name: str, version: str | None) -> tuple[str, str, str]:
        """Version, archive digest as `sha256:…`, and URL of the manifest."""
        repository = f"{repository.rstrip('/')}/{name}"
        if version is None:
            version = newest_release(self.tags(repository))
            if version is None:
                raise NotFoundError(f"{self._base(repository)}/tags/list has no release")
        url, response = self._manifest(repository, version.replace("+", "_"))
        digests = [layer["digest"] for layer in response.json().get("layers", ()) if layer["mediaType"] == HELM_LAYER]
        if len(digests) != 1:
            raise NotFoundError(f"{url} is not a Helm chart: it has {len(digests)} layers of type {HELM_LAYER}")
        return version, str(digests[0]), url

    def _manifest(self, repository: str, reference: str) -> tuple[str, urllib3.BaseHTTPResponse]:
        url = f"{self._base(repository)}/manifests/{reference}"
        return url, self._get(url, accept=", ".join(_MANIFESTS))

    def _base(self, repository: str) -> str:
        host, _, path = repository.partition("/")
        return f"{'http' if host in self._plain_hosts else 'https'}://{_API_HOSTS.get(host, host)}/v2/{path}"

    def _get(self, url: str, accept: str = "*/*") -> urllib3.BaseHTTPResponse:
        """GET, with authentication if the registry requires it."""
        headers = {"Accept": accept}
        try:
            response = self._pool.request("GET", url, headers=headers)
            if response.status == 401:
                headers["Authorization"] = self._authorization(url, response.headers.get("WWW-Authenticate", ""))
                response = self._pool.request("GET", url, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise NoAnswerError(f"{url}: {reason_of(error)}") from error
        if response.status != 200:
            raise not_answered(url, response.status)
        return response

    def _authorization(self, url: str, challenge: str) -> str:
        """The Authorization header: Basic for ECR, an anonymous Bearer token for other registries."""
        login = self._login(urlsplit(url).netloc)
        return f"Basic {login}" if login and challenge.startswith("Basic ") else f"Bearer {self._token(challenge)}"

    def _token(self, challenge: str) -> str:
        """An anonymous token for a Bearer challenge (OCI distribution, token authentication)."""
        fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        if not challenge.startswith("Bearer ") or "realm" not in fields:
            raise NoAnswerError(f"the registry requires {challenge.partition(' ')[0] or 'unknown'} authentication")
        realm = fields.pop("realm")
        response = self._pool.request("GET", f"{realm}?{urlencode(fields)}")
        if response.status != 200:
            raise NoAnswerError(f"{realm}: HTTP status {response.status} without credentials")
        answer = cast("dict[str, str]", response.json())
        return answer.get("token") or answer["access_token"]


def not_answered(url: str, status: int) -> NotFoundError:
    """The error of an HTTP status: only 404 and 410 say that the source does not have it."""
    kind = NotFoundError if status in {404, 410} else NoAnswerError
    return kind(f"{url}: HTTP status {status}")


def ecr_login(client: Callable[[str], Client]) -> Callable[[str], str | None]:
    """The `login` of `Registries` for ECR.

    Args:
        client: creates the ECR client of a region.
    """

    def login(host: str) -> str | None:
        found = _ECR.match(host)
        if found is None:
            return None
        try:
            answer = client(found["region"]).get_authorization_token()
        except (BotoCoreError, ClientError) as error:
            raise NoAnswerError(f"{host}: {error}") from error
        return str(answer["authorizationData"][0]["authorizationToken"])

    return login
