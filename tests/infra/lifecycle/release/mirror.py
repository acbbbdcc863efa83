"""Sources of the release's versions on one local server, and doubles for AWS, a package index and plain files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

from infra.lifecycle.release.lock import Sources
from infra.lifecycle.release.registries import Answer, ChartAnswer, ChartDetails, Registries
from infra.lifecycle.release.web_sources import RemoteFile
from infra.spec.errors import NotFoundError
from infra.spec.release import AmiType, Image, load_release
from platform_charts.charts.archives import Download
from tests.infra.lifecycle.release.servers import IMAGE_INDEX, Site


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
        return self._registries.chart(self._charts(repository), name, version)

    def versions(self, repository: str, name: str) -> tuple[str, ...]:
        return self._registries.versions(self._charts(repository), name)

    def details(self, repository: str, name: str, version: str) -> ChartDetails:
        return self._registries.details(self._charts(repository), name, version)

    def archive(self, repository: str, name: str, version: str) -> Download:
        return self._registries.archive(self._charts(repository), name, version)

    def digest(self, repository: str, tag: str) -> Answer:
        return self._registries.digest(self._image(repository), tag)

    def tags(self, repository: str) -> tuple[str, ...]:
        return self._registries.tags(self._image(repository))


@dataclass
class Aws:
    """AMIs, add-ons and Kubernetes minors.

    Add-ons may be `absent`, and have a `default` version, a `known` other one, and a `newer` one.
    """

    absent: tuple[str, ...] = ()
    newer: Mapping[str, str] = field(default_factory=dict)
    default: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)
    kubernetes: tuple[str, ...] = ("1.34", "1.35")
    ami_date: str = "20300101"

    def release(self, kubernetes: str, ami_type: AmiType) -> Answer:
        return Answer(f"{kubernetes}.2-{self.ami_date}", f"SSM {ami_type}")

    def published(self, kubernetes: str, ami_type: AmiType, release: str) -> str:
        return f"SSM {ami_type} {kubernetes} {release}"

    def version(self, name: str, kubernetes: str) -> Answer:
        if name in self.absent:
            raise NotFoundError(f"no add-on {name}")
        return Answer(self.default.get(name, f"v{kubernetes}.0-eksbuild.1"), "EKS")

    def versions(self, name: str, kubernetes: str) -> tuple[str, ...]:
        return tuple(versions[name] for versions in (self.known, self.newer) if name in versions) or (
            self.version(name, kubernetes).value,
        )

    def minors(self) -> tuple[str, ...]:
        return self.kubernetes


@dataclass
class Web:
    """A package index and files."""

    packages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: Mapping[str, RemoteFile] = field(default_factory=dict)

    def versions(self, name: str) -> tuple[str, ...]:
        if name not in self.packages:
            raise NotFoundError(f"no package {name}")
        return self.packages[name]

    def file(self, url: str) -> RemoteFile:
        if url not in self.files:
            raise NotFoundError(f"{url}: HTTP status 404")
        return self.files[url]


def sources(site: Site, aws: Aws | None = None, web: Web | None = None) -> Sources:
    mirror, aws, web = Mirror(site), aws or Aws(), web or Web()
    return Sources(charts=mirror, images=mirror, node_images=aws, addons=aws, clusters=aws, packages=web, files=web)


def add_image(site: Site, image: Image, *tags: str) -> None:
    name = image.repository.partition("/")[2]
    for tag in (image.tag, *tags):
        site.add_manifest(name, tag, {"mediaType": IMAGE_INDEX, "annotations": {"of": f"{name}:{tag}"}})
    site.add_tags(name, image.tag, *tags)


def add_charts(site: Site, **newer: dict[str, str]) -> None:
    """Add every chart of the release, and newer releases of some: `name={"version": …, "appVersion": …}`."""
    index: dict[str, list[dict[str, str]]] = {}
    for name, chart in load_release().charts.items():
        shipped = {"version": str(chart.version), "digest": "a" * 64}
        more = [{"digest": "b" * 64, **newer[key]}] if (key := name.replace("-", "_")) in newer else []
        index[name] = [shipped, *more]
        if chart.repository.startswith("oci://"):
            path = f"{chart.repository.removeprefix('oci://').partition('/')[2]}/{name}"
            for one in index[name]:
                site.add_chart(path, one["version"], f"sha256:{one['digest']}", appVersion=one.get("appVersion", ""))
            site.add_tags(path, *(one["version"] for one in index[name]))
    site.add_index(yaml.safe_dump({"entries": index}))


def add_release(site: Site, **newer: dict[str, str]) -> None:
    """Add every chart and every image of others that the release names, and newer charts."""
    add_charts(site, **newer)
    for image in load_release().images.values():
        if not image.is_ours:
            add_image(site, image)
