"""Image references in the forms that charts take: by digest, and from a mirror where there is one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from infra.spec.manifest import Manifest
from infra.spec.release import ReleaseManifest

_IMAGE_ARGUMENT = re.compile(r"^--prometheus-config-reloader=(?P<image>.+)$")
"""An operator's argument with the image of the containers it makes."""


@dataclass(frozen=True, kw_only=True)
class ImageName:
    """A reference in the forms in which charts take it.

    Attributes:
        name: registry and repository that it is pulled from.
        tag: tag, for people to read where there is a digest.
        digest: sha256:…, None where the release has not resolved it.
    """

    name: str
    tag: str
    digest: str | None

    def repository_and_tag(self) -> Manifest:
        """Values of a chart that writes `repository:tag`, which is made to write `repository@sha256:digest`."""
        if self.digest is None:
            return {"repository": self.name, "tag": self.tag}
        algorithm, _, digest = self.digest.partition(":")
        return {"repository": f"{self.name}@{algorithm}", "tag": digest}

    def registry_and_repository(self, digest_key: str = "sha", *, has_algorithm: bool = False) -> Manifest:
        """Values of a chart that writes `registry/repository:tag@digest`; the digest is empty where there is none.

        Args:
            digest_key: what the chart calls the digest.
            has_algorithm: the chart wants `sha256:` in the value; else it writes that itself.
        """
        registry, _, repository = self.name.partition("/")
        digest = self.digest or ""
        shown = digest if has_algorithm else digest.removeprefix("sha256:")
        return {"registry": registry, "repository": repository, "tag": self.tag, digest_key: shown}


class ImageNames:
    """References of third-party images in an environment, by their name in the release manifest.

    Args:
        release: repositories, tags and digests.
        mirror: registry, with a path, that holds every image under its full name; None: there is none.
        caches: registry, with a path, of a pull-through cache by the public registry it caches.
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
            ValueError: it is one of ours, which no chart installs.
        """
        image = self._images[key]
        if image.is_ours:
            raise ValueError(f"{key} is an image of ours; use Image.reference()")
        return ImageName(name=self._source(image.repository), tag=image.tag, digest=image.digest)

    def _source(self, repository: str) -> str:
        """Where an image is pulled from: a mirror has everything, a cache the images of the registry it caches."""
        if self._mirror is not None:
            return f"{self._mirror}/{repository}"
        host = repository.partition("/")[0]
        return self._caches.get(host, host) + repository.removeprefix(host)


def images_of(manifests: Iterable[Manifest]) -> Iterator[str]:
    """Every image that objects name, in pods, in templates of pods, in custom resources, and in operators' arguments."""
    for manifest in manifests:
        yield from _images(manifest)


def without_digest(manifests: Iterable[Manifest]) -> tuple[str, ...]:
    """Images that objects name by tag, which anyone who may push can move; sorted."""
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
