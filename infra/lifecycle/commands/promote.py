"""Copy our own images from one environment's registry to another's, so that it runs the digest that was tested."""

from __future__ import annotations

from datetime import UTC, date, datetime

from infra.lifecycle.image.copying import Copied, copy_image
from infra.lifecycle.image.ecr import EnvironmentRegistry
from infra.lifecycle.image.layers import size_text
from infra.lifecycle.image.recipes import IMAGES, ImageName
from infra.lifecycle.image.record import write_copy
from infra.lifecycle.options import PromoteOptions
from infra.lifecycle.show import print_line
from infra.spec.errors import RefusedError
from infra.spec.release import RELEASE_FILE, Image, ReleaseManifest, load_release
from infra.spec.settings import load_environment


def promote(options: PromoteOptions) -> int:
    """Copy one image or all by the release's digest, and record the copy in the release manifest."""
    names: tuple[ImageName, ...] = (options.image,) if options.image else IMAGES
    for environment in (options.from_, options.to):
        load_environment(environment)  # a wrong name is refused before a missing image
    release = load_release(RELEASE_FILE)
    _check_pushed(names, release)
    origin = EnvironmentRegistry.open(options.from_, profile=options.from_profile)
    target = EnvironmentRegistry.open(options.to, profile=options.to_profile)
    if origin.registry == target.registry:
        raise RefusedError(
            f"{options.from_} and {options.to} have the same repositories, those of {target.registry.name_prefix} in "
            f"{target.registry.host}",
            remedy="name two environments with --from and --to",
        )
    for name in names:
        target.digest(
            release.images[name], release.images[name].tag
        )  # refuses a missing repository before anything is copied
    for name in names:
        copied = _copy(name, release.images[name], origin, target)
        if copied is None:
            print_line(f"{name}: already promoted, 0 bytes copied")
            continue
        write_copy(RELEASE_FILE, name, origin=options.from_, target=options.to, today=today())
        size = size_text(copied.size)
        print_line(f"{name}: {copied.blobs} blobs, {size} copied; recorded in {RELEASE_FILE.name}; commit it")
    return 0


def today() -> date:
    """The date of a copy, in UTC."""
    return datetime.now(UTC).date()


def _check_pushed(names: tuple[ImageName, ...], release: ReleaseManifest) -> None:
    unresolved = [f"images.{name}.digest" for name in names if release.images[name].digest is None]
    if unresolved:
        raise RefusedError(
            f"unresolved in {RELEASE_FILE.name}, so there is no image to copy: {', '.join(unresolved)}",
            remedy="push it first: make image PUSH=1 ENV=…",
        )


def _copy(name: ImageName, image: Image, origin: EnvironmentRegistry, target: EnvironmentRegistry) -> Copied | None:
    """Copy an image; None if the target has it."""
    assert image.digest is not None, f"{name} was checked to have a digest"
    source, copy = origin.remote(image), target.remote(image)
    print_line(f"{name}: {image.digest} from {source} to {copy} as {image.tag}")
    return copy_image(source, copy, digest=image.digest, tag=image.tag, say=lambda line: print_line(f"{name}: {line}"))
