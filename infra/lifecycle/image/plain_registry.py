"""A registry without TLS and login, which an address and a port name: that of a sandbox."""

from __future__ import annotations

from typing import NamedTuple

from infra.lifecycle.image.availability import MissingImage, Reason
from infra.lifecycle.image.distribution import RemoteRepository
from infra.spec.registry_names import repository_name
from infra.spec.release import Image, ReleaseManifest


class PlainRegistry(NamedTuple):
    """A registry with the repositories of one environment; a push makes a repository that is missing.

    Attributes:
        host: address and port.
        name_prefix: prefix of the stack's physical names, the first part of every repository's name.
    """

    host: str
    name_prefix: str

    def reference(self, image: Image, tag: str) -> str:
        """The full reference of a tag."""
        return f"{self.repository(image)}:{tag}"

    def repository(self, image: Image) -> str:
        """Registry and name of the repository of an image of ours."""
        return f"{self.host}/{repository_name(self.name_prefix, image.repository)}"

    def digest(self, image: Image, tag: str) -> str | None:
        """The digest of a tag, or of an image by its digest; None if there is none.

        Raises:
            PlatformError: the registry failed.
        """
        found = self.remote(image).manifest(tag)
        return None if found is None else found.digest

    def missing(self, release: ReleaseManifest) -> tuple[MissingImage, ...]:
        """The images of ours that the registry lacks, in the order of the release.

        Raises:
            PlatformError: the registry failed.
        """
        ours = ((name, image) for name, image in release.images.items() if image.is_ours)
        return tuple(MissingImage(name, reason) for name, image in ours if (reason := self._reason(image)) is not None)

    def _reason(self, image: Image) -> Reason | None:
        if image.digest is None:
            return "digest unresolved"
        return None if self.digest(image, image.digest) else "not in the registry"

    def log_in(self) -> None:
        """No credentials: the registry takes none."""

    def remote(self, image: Image) -> RemoteRepository:
        """The repository of an image, through the registry API."""
        return RemoteRepository(f"http://{self.host}", repository_name(self.name_prefix, image.repository))
