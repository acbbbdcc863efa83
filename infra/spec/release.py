"""The release manifest: the version of everything in one release of the platform.

A digest, an archive hash or an image release is looked up in its registry or stays null; see `unresolved`.
`infra.spec.release_rules` checks whether the versions fit together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, Field

from infra.spec.section import Section, read_document, validate

RELEASE_FILE = Path(__file__).with_name("release.yaml")


def _specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(f"invalid version range {text!r}; an example is >=1.19,<2") from error
    return text


VersionRange = Annotated[str, AfterValidator(_specifier)]
Version = Annotated[str, Field(pattern=r"^\d+(\.\d+)*$")]
AmiType = Literal["AL2023_x86_64_STANDARD", "AL2023_x86_64_NVIDIA"]


class Entry(Section):
    """Something with a version that is published elsewhere."""

    as_of: date | None = Field(None, description="Day the entry was last compared with its source.")
    source: str | None = Field(None, description="Where the version was looked up.")


class Kubernetes(Entry):
    """The control plane."""

    version: str = Field(pattern=r"^1\.\d{2}$", description="Kubernetes minor of the control plane.")
    supported: tuple[str, ...] = Field(min_length=1, description="Minors an environment may stay at.")


class NodeImage(Entry):
    """The EKS-optimised AMIs."""

    family: Literal["AL2023"] = Field(description="Operating system.")
    releases: dict[AmiType, Annotated[str, Field(pattern=r"^1\.\d{2}\.\d+-\d{8}$")] | None] = Field(
        description="Release version by EKS AMI type, e.g. 1.35.2-20260101; null is unresolved."
    )
    nvidia_driver: Version = Field(description="Driver branch of the accelerated image.")


class TrainingStack(Entry):
    """The software that runs are trained with."""

    python: Version = Field(description="Python minor of image and client; Ray requires them to be equal.")
    ray: Version = Field(description="Ray of image, RayCluster and client; Ray requires them to be equal.")
    torch: Version = Field(description="PyTorch.")
    cuda: Version = Field(description="CUDA minor that PyTorch was built for.")
    mlflow: Version = Field(description="MLflow of server and client.")


class AddOn(Entry):
    """An EKS add-on."""

    version: Annotated[str, Field(pattern=r"^v\d+\.\d+\.\d+-eksbuild\.\d+$")] | None = Field(
        description="Version as EKS names it; null is unresolved."
    )
    minimum: Version | None = Field(None, description="Lowest version without a bug that matters here.")
    kubernetes: VersionRange | None = Field(None, description="Kubernetes versions it is published for.")
    is_kubernetes_version: bool = Field(False, description="Its minor must be that of the control plane.")


class Chart(Entry):
    """A Helm chart."""

    repository: str = Field(pattern=r"^(https|oci)://", description="Repository of the chart.")
    version: Annotated[str, Field(pattern=r"^v?\d+(\.\d+)*$")] | None = Field(
        description="Version of the chart; null is unresolved."
    )
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        description="Hash of the archive; null is unresolved."
    )
    app_version: Version | None = Field(None, description="Version of the application it installs, where that differs.")
    kubernetes: VersionRange | None = Field(None, description="The chart's kubeVersion; null: none recorded.")
    is_kubernetes_version: bool = Field(False, description="app_version's minor must be that of the control plane.")


class Image(Entry):
    """A container image."""

    repository: str = Field(min_length=1, description="Registry and name; for our own images the name in our ECR only.")
    is_ours: bool = Field(False, description="Built from this repository and kept in the stack's own ECR.")
    tag: str = Field(
        pattern=r"^[\w][\w.-]{0,127}$", description="Tag, for people to read; the digest is what is pulled."
    )
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = Field(
        description="Digest of the image or its index; null is unresolved."
    )
    chart: str | None = Field(None, description="Chart whose app_version the tag must have.")
    contains: dict[str, Version] = Field(default_factory=dict, description="Versions inside, recorded by the build.")

    def reference(self, registry: str = "") -> str:
        """What a pod pulls: by digest, or by tag where the digest is unresolved.

        Args:
            registry: host of the stack's own ECR, and the prefix of our repositories there.
        """
        return self.reference_in(f"{registry}/{self.repository}" if self.is_ours else self.repository)

    def reference_in(self, repository: str) -> str:
        """What a pod pulls from a repository, named by registry and path as the stack outputs list ours."""
        return f"{repository}@{self.digest}" if self.digest else f"{repository}:{self.tag}"


class Download(Entry):
    """A file that an image build downloads, published in no registry of images, charts or packages."""

    url: str = Field(pattern=r"^https://", description="URL; {version} stands for the version.")
    version: Version = Field(description="Version.")
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        description="Hash of the file; null is unresolved."
    )

    def address(self) -> str:
        """The URL of this version."""
        return self.url.format(version=self.version)


class Compatibility(Section):
    """What upstream says is compatible."""

    ray_for_kuberay: VersionRange = Field(description="Ray versions the KubeRay operator works with.")
    driver_for_cuda: dict[str, Version] = Field(description="Lowest driver branch by CUDA major.")


class ReleaseManifest(Section):
    """The whole file."""

    platform: Version = Field(description="Version of this platform, the project's own.")
    kubernetes: Kubernetes = Field(description="The control plane.")
    node_image: NodeImage = Field(description="The nodes' operating system and driver.")
    stack: TrainingStack = Field(description="The software that runs are trained with.")
    addons: dict[str, AddOn] = Field(description="EKS add-ons by name.")
    charts: dict[str, Chart] = Field(description="Helm charts by name.")
    images: dict[str, Image] = Field(description="Container images by name.")
    downloads: dict[str, Download] = Field(description="Files that images are built with, by name.")
    crds: dict[str, Version] = Field(description="Versions of the CRDs that the stack applies.")
    compatibility: Compatibility = Field(description="What upstream says is compatible.")

    def unresolved(self) -> tuple[str, ...]:
        """Dotted names of everything that has not been looked up yet, in the order of the file."""
        return tuple(_unresolved(self))


_LOOKED_UP: Mapping[str, tuple[str, ...]] = {
    "addons": ("version",),
    "charts": ("version", "sha256"),
    "images": ("digest",),
    "downloads": ("sha256",),
}
"""Fields of entries that are null until they are looked up, by group, in the order of the file."""


def _unresolved(release: ReleaseManifest) -> Iterator[str]:
    for ami, version in release.node_image.releases.items():
        if version is None:
            yield f"node_image.releases.{ami}"
    for group, fields in _LOOKED_UP.items():
        for name, entry in getattr(release, group).items():
            yield from (f"{group}.{name}.{field}" for field in fields if getattr(entry, field) is None)


class Stale(NamedTuple):
    """An entry that has not been compared with its source for a while; `days` is None where it never was."""

    entry: str
    days: int | None


def staleness(release: ReleaseManifest, *, today: date, limit_days: int = 90) -> tuple[Stale, ...]:
    """Entries older than `limit_days`, those never looked up first, then the oldest."""
    entries: dict[str, Entry] = {
        "kubernetes": release.kubernetes,
        "node_image": release.node_image,
        "stack": release.stack,
    }
    groups: dict[str, Mapping[str, Entry]] = {
        "addons": release.addons,
        "charts": release.charts,
        "downloads": release.downloads,
    }
    foreign_images = {name: image for name, image in release.images.items() if not image.is_ours}
    for group, members in {**groups, "images": foreign_images}.items():
        entries.update({f"{group}.{name}": member for name, member in members.items()})
    ages = (Stale(name, None if entry.as_of is None else (today - entry.as_of).days) for name, entry in entries.items())
    late = [stale for stale in ages if stale.days is None or stale.days > limit_days]
    return tuple(sorted(late, key=lambda stale: (stale.days is not None, -(stale.days or 0), stale.entry)))


@cache
def load_release(path: Path = RELEASE_FILE) -> ReleaseManifest:
    """Read the release manifest.

    Raises:
        SettingsError: the file is not a manifest; names the key.
    """
    document = read_document(path)
    return validate(ReleaseManifest, document.value, file=path.name, places=document.places())
