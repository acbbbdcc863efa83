"""Builds an image and pushes it to a registry, unless its tag is there."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from infra.lifecycle.image import engines
from infra.lifecycle.image.availability import MissingImage
from infra.lifecycle.image.ecr import Login
from infra.lifecycle.image.engines import ImageEngine
from infra.lifecycle.image.plan import EngineBuild
from infra.lifecycle.image.runtime import on_runtime
from infra.lifecycle.show import print_line
from infra.spec.errors import PlatformError
from infra.spec.release import Image, ReleaseManifest, load_release


class ImageRegistry(Protocol):
    """A registry that images are pushed to: that of an environment, or of a sandbox."""

    def reference(self, image: Image, tag: str) -> str:
        """The full reference of a tag."""
        ...

    def repository(self, image: Image) -> str:
        """Registry and name of the repository of an image of ours."""
        ...

    def missing(self, release: ReleaseManifest) -> tuple[MissingImage, ...]:
        """The images of ours that the registry lacks, in the order of the release."""
        ...

    def digest(self, image: Image, tag: str) -> str | None:
        """The digest of a tag; None if there is no such tag."""
        ...

    def log_in(self) -> Login | None:
        """Credentials; None for a registry without TLS and login."""
        ...


def push(
    build: EngineBuild,
    registry: ImageRegistry,
    builder: ImageEngine,
    *,
    log: Path | None = None,
    watch: Callable[[str], None] = lambda _: None,
) -> str:
    """Build and push unless the tag, which is immutable, exists already; returns the digest.

    Args:
        build: what to build.
        registry: where to push.
        builder: engine that builds and pushes.
        log: file for the engine's output; None leaves it to the terminal.
        watch: called with every line that goes to the log.

    Raises:
        RefusedError: the registry has no such repository, or the credentials are for another one.
        PlatformError: the engine failed.
    """
    entry = load_release().images[build.image]
    known = registry.digest(entry, build.tag)
    if known is not None:
        print_line(f"{build.image}: {build.tag} is already in the registry")
        return known
    reference, login = registry.reference(entry, build.tag), registry.log_in()
    if login is not None:
        engines.run(builder.log_in(login.registry, login.user), standard_input=login.password)
    run = partial(engines.run, log=log, watch=watch)
    for command in builder.release(on_runtime(build, builder, run=run), reference, plain_http=login is None):
        run(command)
    pushed = registry.digest(entry, build.tag)
    if pushed is None:
        raise PlatformError(f"{builder.name} pushed {reference}, but the registry does not have it")
    return pushed
