"""Images as charts want them written: by digest, and from a mirror where there is one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from infra.spec.manifest import Manifest
from infra.spec.release import ReleaseManifest

_IMAGE_ARGUMENT = re.compile(r"^--prometheus-config-reloader=(?P<image>.+)$")
"""An operator's argument that names the image of containers it makes."""


@dataclass(frozen=True, kw_only=True)
class ImageName:
    """The parts of a reference.

    Attributes:
        registry: host that it is pulled from.
        repository: path in the registry.
        tag: tag, for people to read where there is a digest.
        digest: sha256:…, None where the release has not resolved it.
    """

    registry: str
    repository: str
    tag: str
    digest: str | None

    @property
    def name(self) -> str:
        """Registry and repository."""
        return f"{self.registry}/{self.repository}"

    @property
    def hex_digest(self) -> str:
        """The digest without its `sha256:`; empty where there is none, as charts have it."""
        return (self.digest or "").removeprefix("sha256:")

    def in_two(self) -> Manifest:
        """Values of a chart that writes `repository:tag`, which is told to write `repository@sha256:digest`."""
        if self.digest is None:
            return {"repository": self.name, "tag": self.tag}
        return {"repository": f"{self.name}@sha256", "tag": self.hex_digest}

    def in_parts(self, digest_key: str = "sha", *, is_bare: bool = True) -> Manifest:
        """Values of a chart that writes `registry/repository:tag@digest`.

        Args:
            digest_key: what the chart calls the digest.
            is_bare: the chart itself writes `sha256:` before it.
        """
        digest = self.hex_digest if is_bare else self.digest or ""
        return {"registry": self.registry, "repository": self.repository, "tag": self.tag, digest_key: digest}


class ImageNames:
    """What other people's images are called in an environment.

    Args:
        release: repositories, tags and digests.
        mirror: host, and path there, that has every image below its full name; None has none.
        caches: host, and path there, of a pull-through cache by the public registry it caches.
    """

    def __init__(
        self, release: ReleaseManifest, *, mirror: str | None = None, caches: Mapping[str, str] | None = None
    ) -> None:
        self._images = release.images
        self._mirror = mirror
        self._caches = caches or {}

    def __getitem__(self, key: str) -> ImageName:
        """The image that the release manifest has under this name.

        Raises:
            KeyError: it has none.
            ValueError: it is one of ours, which charts do not install.
        """
        image = self._images[key]
        if image.is_ours:
            raise ValueError(f"{key} is an image of ours: Image.reference() names it")
        host, _, path = image.repository.partition("/")
        registry, _, repository = self._from_here(host, path).partition("/")
        return ImageName(registry=registry, repository=repository, tag=image.tag, digest=image.digest)

    def _from_here(self, host: str, path: str) -> str:
        """Where an image is pulled from; a mirror has everything, a cache what is in the registry it caches."""
        if self._mirror is not None:
            return f"{self._mirror}/{host}/{path}"
        return f"{self._caches.get(host, host)}/{path}"


def images_of(manifests: Iterable[Manifest]) -> Iterator[str]:
    """Every image that objects name, in pods, in templates of pods, in custom resources, and in operators' arguments."""
    for manifest in manifests:
        yield from _images(manifest)


def without_digest(manifests: Iterable[Manifest]) -> tuple[str, ...]:
    """Images that objects name by a tag, which whoever may push can move; sorted."""
    return tuple(sorted({image for image in images_of(manifests) if "@sha256:" not in image}))


def _images(node: object) -> Iterator[str]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == "image" and isinstance(value, str):
                yield value
            else:
                yield from _images(value)
    elif isinstance(node, list):
        for member in node:
            yield from _images(member)
    elif isinstance(node, str) and (found := _IMAGE_ARGUMENT.match(node)):
        yield found["image"]
