"""Images derived from a release's trainer image, or that of sessions: the packages that a code folder needs in addition.

An image records in its manifest what was added to which base, so a mismatch is found before a job holds GPUs. The name of the
base is in the key that the OCI Image Format Specification 1.1 defines (annotations.md, "Pre-Defined Annotation Keys").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement

from infra.packages.lock import Package, read_lock
from infra.packages.overlay import Target
from infra.packages.requirements import CLIENTS, Platform, unmet
from infra.spec.release import ReleaseManifest

BASE_ANNOTATION = "org.opencontainers.image.base.digest"
PACKAGES_ANNOTATION = "ray-train-platform.packages"

TAG_PREFIX = "custom-"
"""Beginning of the tags of derived images; those of a release begin with its version, which has a dot."""

REMOVED = frozenset({"setuptools"})
"""Packages of the trainer's lock that its Dockerfile removes again."""

LINUX: Mapping[str, str] = {
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}


def image_target(release: ReleaseManifest) -> Target:
    """The Python of the trainer image; manylinux_2_28 is the platform that the locks are resolved for."""
    return Target(python=_python(release), platform="x86_64-manylinux_2_28")


def image_markers(release: ReleaseManifest) -> dict[str, str]:
    """Values of environment markers in the trainer image (PyPA, "Dependency specifiers"); the patch version is not known."""
    return linux_markers(_python(release))


def linux_markers(python: str) -> dict[str, str]:
    """Values of environment markers in an image with a Python, e.g. 3.11."""
    return {
        **LINUX,
        "python_version": python,
        "python_full_version": f"{python}.0",
        "implementation_version": f"{python}.0",
    }


def image_platform(release: ReleaseManifest, *locks: Path) -> Platform:
    """The packages of the trainer image, or of that of sessions, by its locks.

    Raises:
        OSError: a lock cannot be read.
    """
    markers = image_markers(release)
    locked = {package.name: package.version for lock in locks for package in read_lock(lock, markers)}
    locked |= {name: locked[client] for name, client in CLIENTS.items() if client in locked}
    return Platform(locked=locked, installed=lambda name: None if name in REMOVED else locked.get(name))


def manifest_annotations(packages: Sequence[Package], *, base: str) -> dict[str, str]:
    """What the manifest of a derived image records.

    Args:
        packages: the added packages.
        base: digest of the release's image.
    """
    return {BASE_ANNOTATION: base, PACKAGES_ANNOTATION: " ".join(f"{one.name}=={one.version}" for one in packages)}


def shortcomings(
    recorded: Mapping[str, str], missing: Sequence[Requirement], release: ReleaseManifest
) -> Iterator[str]:
    """Why code cannot run in an image, a line each.

    Args:
        recorded: annotations of its manifest.
        missing: the requirements that the trainer image does not meet.
        release: the release that the job is rendered for.
    """
    base, expected = recorded.get(BASE_ANNOTATION), release.images["trainer"].digest
    if base is None or base not in {expected, release.images["session"].digest}:
        yield f"it was derived from {base or 'an unknown image'}, the trainer of this release is {expected}"
    added = dict(one.split("==", 1) for one in recorded.get(PACKAGES_ANNOTATION, "").split())
    yield from unmet(missing, added.get)


def _python(release: ReleaseManifest) -> str:
    """Version of the base image's Python, from its tag, e.g. 3.11-slim-bookworm."""
    return str(release.images["python-base"].tag).partition("-")[0]
