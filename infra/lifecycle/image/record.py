"""What the release manifest records of our own images: tag, digest and versions after a push, and copies."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path

from infra.lifecycle.image.recipes import ImageName
from infra.spec.release import Image, ReleaseManifest, load_release
from infra.spec.section import validate
from infra.spec.yaml_text import KeyPath, Scalar, edited, parse


def contents(image: Image, release: ReleaseManifest) -> dict[str, str]:
    """The stack's versions of the packages that the release manifest records for an image."""
    return {package: str(getattr(release.stack, package)) for package in image.contains}


def write_push(file: Path, image: ImageName, *, tag: str, digest: str, revision: str, today: date) -> None:
    """Write a pushed image into the release manifest: tag, digest, package versions, and the commit it was built from.

    Nothing is written if the manifest has this tag and digest already: the same content may be built from several commits.

    Raises:
        SettingsError: the manifest would become invalid; the file stays unchanged.
    """
    release = load_release(file)
    entry = release.images[image]
    if (entry.tag, entry.digest) == (tag, digest):
        return
    changes: dict[KeyPath, Scalar] = {
        ("images", image, "tag"): tag,
        ("images", image, "digest"): digest,
        ("images", image, "as_of"): today,
        ("images", image, "source"): f"built from commit {revision}",
    }
    for package, version in contents(entry, release).items():
        if entry.contains[package] != version:
            changes["images", image, "contains", package] = version
    _write(file, changes)


def write_copy(file: Path, image: ImageName, *, origin: str, target: str, today: date) -> None:
    """Write into the release manifest that an image was copied from one environment's registry to another's.

    Raises:
        SettingsError: the manifest would become invalid; the file stays unchanged.
    """
    known, note = load_release(file).images[image].source, f"copied from {origin} to {target} on {today}"
    source = f"{known}; {note}" if known else note
    _write(file, {("images", image, "as_of"): today, ("images", image, "source"): source})


def _write(file: Path, changes: Mapping[KeyPath, Scalar]) -> None:
    changed = edited(file.read_text(encoding="utf-8"), changes)
    validate(ReleaseManifest, parse(changed, source=file.name).value, file=f"{file.name} after the change")
    file.write_text(changed, encoding="utf-8")
    load_release.cache_clear()
