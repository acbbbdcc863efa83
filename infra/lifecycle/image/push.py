"""Builds an image and pushes it to an environment's registry, unless its tag is there."""

from __future__ import annotations

from infra.lifecycle.image import engines
from infra.lifecycle.image.ecr import EnvironmentRegistry
from infra.lifecycle.image.engines import ImageEngine
from infra.lifecycle.image.plan import EngineBuild
from infra.lifecycle.show import print_line
from infra.spec.errors import PlatformError
from infra.spec.release import load_release


def push(build: EngineBuild, registry: EnvironmentRegistry, builder: ImageEngine) -> str:
    """Build and push unless the tag, which is immutable, exists already; returns the digest.

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
    engines.run(builder.log_in(login.registry, login.user), standard_input=login.password)
    for command in builder.release(build, reference):
        engines.run(command)
    pushed = registry.digest(entry, build.tag)
    if pushed is None:
        raise PlatformError(f"{builder.name} pushed {reference}, but the registry does not have it")
    return pushed
