"""Sources of the release's versions on one local server, and doubles for AWS, a package index and plain files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.lifecycle.release.lock import Sources
from infra.lifecycle.release.registries import Answer, ChartAnswer, ChartDetails, Registries
from infra.lifecycle.release.web_sources import RemoteFile
from infra.spec.errors import NotFoundError
from infra.spec.release import AmiType
from platform_charts.charts.archives import Download
from tests.infra.lifecycle.release.servers import Site


class Mirror:
    """Serves charts and images of every repository from the site, through the real client."""

    def __init__(self, site: Site) -> None:
        self._registries = Registries(plain_hosts=[site.host], timeout_s=60)
        self._host = site.host

    def _charts(self, repository: str) -> str:
        scheme, _, rest = repository.partition("://")
        return f"oci://{self._host}/{rest.partition('/')[2]}" if scheme == "oci" else f"http://{self._host}/charts"

    def _image(self, repository: str) -> str:
        return f"{self._host}/{repository.partition('/')[2]}"

    def chart(self, repository: str, name: str, version: str | None) -> ChartAnswer:
        """The chart, from the site."""
        return self._registries.chart(self._charts(repository), name, version)

    def versions(self, repository: str, name: str) -> tuple[str, ...]:
        """The chart's versions, from the site."""
        return self._registries.versions(self._charts(repository), name)

    def details(self, repository: str, name: str, version: str) -> ChartDetails:
        """Fields of Chart.yaml, from the site."""
        return self._registries.details(self._charts(repository), name, version)

    def archive(self, repository: str, name: str, version: str) -> Download:
        """The archive, from the site."""
        return self._registries.archive(self._charts(repository), name, version)

    def digest(self, repository: str, tag: str) -> Answer:
        """The image's digest, from the site."""
        return self._registries.digest(self._image(repository), tag)

    def tags(self, repository: str) -> tuple[str, ...]:
        """The image's tags, from the site."""
        return self._registries.tags(self._image(repository))


@dataclass
class Aws:
    """AMIs, add-ons and Kubernetes minors.

    Attributes:
        absent: add-ons that do not exist.
        newer: a second version of an add-on, by name.
        default: default version of an add-on, by name.
        known: the other version of an add-on, by name.
        kubernetes: minors in standard support.
        ami_date: date of the recommended AMIs.
    """

    absent: tuple[str, ...] = ()
    newer: Mapping[str, str] = field(default_factory=dict)
    default: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)
    kubernetes: tuple[str, ...] = ("1.34", "1.35")
    ami_date: str = "20300101"

    def release(self, kubernetes: str, ami_type: AmiType) -> Answer:
        """A release of the minor."""
        return Answer(f"{kubernetes}.2-{self.ami_date}", f"SSM {ami_type}")

    def published(self, kubernetes: str, ami_type: AmiType, release: str) -> str:
        """The parameter of the AMI."""
        return f"SSM {ami_type} {kubernetes} {release}"

    def version(self, name: str, kubernetes: str) -> Answer:
        """A version of the minor."""
        if name in self.absent:
            raise NotFoundError(f"no add-on {name}")
        return Answer(self.default.get(name, f"v{kubernetes}.0-eksbuild.1"), "EKS")

    def versions(self, name: str, kubernetes: str) -> tuple[str, ...]:
        """The known version, and the newer one."""
        return tuple(versions[name] for versions in (self.known, self.newer) if name in versions) or (
            self.version(name, kubernetes).value,
        )

    def minors(self) -> tuple[str, ...]:
        """Minors in standard support."""
        return self.kubernetes


@dataclass
class Web:
    """A package index and files."""

    packages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: Mapping[str, RemoteFile] = field(default_factory=dict)

    def versions(self, name: str) -> tuple[str, ...]:
        """Versions of a package."""
        if name not in self.packages:
            raise NotFoundError(f"no package {name}")
        return self.packages[name]

    def file(self, url: str) -> RemoteFile:
        """A file."""
        if url not in self.files:
            raise NotFoundError(f"{url}: HTTP status 404")
        return self.files[url]


def sources(site: Site, aws: Aws | None = None, web: Web | None = None) -> Sources:
    """All sources, with charts and images from the site."""
    mirror, aws, web = Mirror(site), aws or Aws(), web or Web()
    return Sources(charts=mirror, images=mirror, node_images=aws, addons=aws, clusters=aws, packages=web, files=web)
