"""The release manifest: all versions of one release of the platform.

Digests, archive hashes and AMI releases are null until they are looked up in their registry; see `unresolved`.
`infra.spec.release_rules` checks that the versions fit together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, Field

from infra.spec.section import Section, read_document, validate

RELEASE_FILE = Path(__file__).with_name("release.yaml")


def _specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(f"invalid version range {text!r}; e.g. >=1.19,<2") from error
    return text


VersionRange = Annotated[str, AfterValidator(_specifier)]
Version = Annotated[str, Field(pattern=r"^\d+(\.\d+)*$")]
AmiType = Literal["AL2023_x86_64_STANDARD", "AL2023_x86_64_NVIDIA"]


class Entry(Section):
    """A versioned component with an upstream source."""

    as_of: date | None = Field(None, description="Date of the last check against the source.")
    source: str | None = Field(None, description="Source of the version.")


class Kubernetes(Entry):
    """The control plane."""

    version: str = Field(pattern=r"^1\.\d{2}$", description="Kubernetes minor of the control plane.")
    supported: tuple[str, ...] = Field(min_length=1, description="Minors that environments may use.")


class NodeImage(Entry):
    """The EKS-optimised AMIs."""

    family: Literal["AL2023"] = Field(description="Operating system.")
    releases: dict[AmiType, Annotated[str, Field(pattern=r"^1\.\d{2}\.\d+-\d{8}$")] | None] = Field(
        description="Release version by EKS AMI type, e.g. 1.35.2-20260101; null: unresolved."
    )
    nvidia_driver: Version = Field(description="NVIDIA driver branch of the accelerated AMI.")


class TrainingStack(Entry):
    """The training software."""

    python: Version = Field(description="Python minor of image and client; Ray requires equal versions.")
    ray: Version = Field(description="Ray of image, RayCluster and client; Ray requires equal versions.")
    torch: Version = Field(description="PyTorch.")
    cuda: Version = Field(description="CUDA minor that PyTorch was built for.")
    mlflow: Version = Field(description="MLflow of server and client.")


class AddOn(Entry):
    """An EKS add-on."""

    version: Annotated[str, Field(pattern=r"^v\d+\.\d+\.\d+-eksbuild\.\d+$")] | None = Field(
        description="EKS add-on version; null: unresolved."
    )
    minimum: Version | None = Field(None, description="Lowest version without bugs that affect the platform.")
    kubernetes: VersionRange | None = Field(None, description="Kubernetes versions the add-on supports.")
    is_kubernetes_version: bool = Field(False, description="Its minor must equal the control plane's.")


class Chart(Entry):
    """A Helm chart."""

    repository: str = Field(pattern=r"^(https|oci)://", description="Repository of the chart.")
    version: Annotated[str, Field(pattern=r"^v?\d+(\.\d+)*$")] | None = Field(
        description="Version of the chart; null: unresolved."
    )
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        description="Hash of the archive; null: unresolved."
    )
    app_version: Version | None = Field(None, description="The chart's appVersion, if it differs from the version.")
    kubernetes: VersionRange | None = Field(None, description="The chart's kubeVersion; null: not recorded.")
    is_kubernetes_version: bool = Field(False, description="Minor of app_version must equal the control plane's.")


NOT_PUSHED = "not-pushed"
"""Tag in a reference to an image of ours without a digest. No image has it: such a pod must not look like one of a release."""


class Image(Entry):
    """A container image."""

    repository: str = Field(
        min_length=1, description="Registry and name; for our own images, the name in the stack's ECR."
    )
    is_ours: bool = Field(False, description="Built from this repository and pushed to the stack's ECR.")
    tag: str = Field(pattern=r"^[\w][\w.-]{0,127}$", description="Tag, for information; pods pull by digest.")
    digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = Field(
        description="Digest of the image or its index; null: unresolved."
    )
    chart: str | None = Field(None, description="Chart whose app_version the tag must equal.")
    values_of: str | None = Field(None, description="Chart whose values or subcharts name the tag.")
    contains: dict[str, Version] = Field(default_factory=dict, description="Package versions, recorded by the build.")

    def reference(self, registry: str = "") -> str:
        """The image reference for pods; see `reference_in`.

        Args:
            registry: host of the stack's ECR, with the prefix of our repositories; needed for an image of ours.

        Raises:
            ValueError: the image is ours, and there is no registry.
        """
        if self.is_ours and not registry:
            raise ValueError(f"{self.repository} is an image of ours, so its reference needs the stack's registry")
        return self.reference_in(f"{registry}/{self.repository}" if self.is_ours else self.repository)

    def reference_in(self, repository: str) -> str:
        """The image reference in another repository, given as registry and path, e.g. from the stack outputs.

        It names the digest. Without one, it names the tag of a third-party image; an image of ours was then never pushed,
        and the reference says so.
        """
        if self.digest:
            return f"{repository}@{self.digest}"
        return f"{repository}:{NOT_PUSHED if self.is_ours else self.tag}"


class Download(Entry):
    """A file that an image build downloads from a plain URL."""

    url: str = Field(pattern=r"^https://", description="URL; {version} is replaced.")
    version: Version = Field(description="Version.")
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        description="Hash of the file; null: unresolved."
    )
    latest: str | None = Field(None, pattern=r"^https://", description="URL of the newest version; null: none.")

    def address(self) -> str:
        """The URL of this version."""
        return self.url.format(version=self.version)


class Compatibility(Section):
    """Compatibility ranges published upstream."""

    ray_for_kuberay: VersionRange = Field(description="Ray versions that the KubeRay operator supports.")
    driver_for_cuda: dict[str, Version] = Field(description="Lowest driver branch by CUDA major.")


class ReleaseManifest(Section):
    """The release manifest file."""

    platform: Version = Field(description="Version of the platform: the project's version.")
    kubernetes: Kubernetes = Field(description="The control plane.")
    node_image: NodeImage = Field(description="The nodes' operating system and driver.")
    stack: TrainingStack = Field(description="The training software.")
    addons: dict[str, AddOn] = Field(description="EKS add-ons by name.")
    charts: dict[str, Chart] = Field(description="Helm charts by name.")
    images: dict[str, Image] = Field(description="Container images by name.")
    downloads: dict[str, Download] = Field(description="Files that image builds download, by name.")
    crds: dict[str, Version] = Field(description="Versions of the CRDs that the stack applies.")
    compatibility: Compatibility = Field(description="Compatibility ranges published upstream.")

    def with_digests(self, digests: Mapping[str, str]) -> Self:
        """This release with other digests of some images, by name; see `StackOutputs.digests`."""
        images = {name: self.images[name].model_copy(update={"digest": digest}) for name, digest in digests.items()}
        return self.model_copy(update={"images": {**self.images, **images}})

    def unresolved(self) -> tuple[str, ...]:
        """Dotted names of all unresolved values, in the order of the file."""
        return tuple(_unresolved(self))


_LOOKED_UP: Mapping[str, tuple[str, ...]] = {
    "addons": ("version",),
    "charts": ("version", "sha256"),
    "images": ("digest",),
    "downloads": ("sha256",),
}
"""Fields that are null until they are looked up, by group, in the order of the file."""


def _unresolved(release: ReleaseManifest) -> Iterator[str]:
    for ami, version in release.node_image.releases.items():
        if version is None:
            yield f"node_image.releases.{ami}"
    for group, fields in _LOOKED_UP.items():
        for name, entry in getattr(release, group).items():
            yield from (f"{group}.{name}.{field}" for field in fields if getattr(entry, field) is None)


class Stale(NamedTuple):
    """An entry not checked against its source recently; `days` is None if it never was."""

    entry: str
    days: int | None


def staleness(release: ReleaseManifest, *, today: date, limit_days: int = 90) -> tuple[Stale, ...]:
    """Entries not checked for `limit_days`: never-checked ones first, then the oldest."""
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
    third_party = {name: image for name, image in release.images.items() if not image.is_ours}
    for group, members in {**groups, "images": third_party}.items():
        entries.update({f"{group}.{name}": member for name, member in members.items()})
    ages = (Stale(name, None if entry.as_of is None else (today - entry.as_of).days) for name, entry in entries.items())
    late = [stale for stale in ages if stale.days is None or stale.days > limit_days]
    return tuple(sorted(late, key=lambda stale: (stale.days is not None, -(stale.days or 0), stale.entry)))


@cache
def load_release(path: Path = RELEASE_FILE) -> ReleaseManifest:
    """Read the release manifest.

    Raises:
        SettingsError: the file is not a valid manifest; names the key.
    """
    document = read_document(path)
    return validate(ReleaseManifest, document.value, file=path.name, places=document.places())
