"""Releases with every image resolved, and the images in chart values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from infra.spec.catalog import load_catalog
from infra.spec.release import Image, ReleaseManifest, load_release
from infra.spec.settings.stack import StackSettings
from platform_charts.charts.installs import ChartInstall, chart_installs


def digest_of(image: Image) -> str:
    """A fake digest, unique for every image."""
    return f"sha256:{hashlib.sha256(image.repository.encode()).hexdigest()}"


def with_digests(release: ReleaseManifest | None = None) -> ReleaseManifest:
    """The release with a digest for every image."""
    release = release or load_release()
    images = {name: one.model_copy(update={"digest": digest_of(one)}) for name, one in release.images.items()}
    return release.model_copy(update={"images": images})


def installs_of(settings: StackSettings, release: ReleaseManifest | None = None) -> Mapping[str, ChartInstall]:
    """The Helm releases of an environment."""
    return chart_installs(settings, release or load_release(), load_catalog())


def named_images(values: object) -> Iterator[str]:
    """Image references in chart values, composed of `repository`, `tag` and further keys as charts do."""
    if not isinstance(values, Mapping):
        return
    if "repository" in values and "tag" in values:
        registry = f"{values['registry']}/" if "registry" in values else ""
        digest = str(values.get("sha") or values.get("digest") or "").removeprefix("sha256:")
        yield f"{registry}{values['repository']}:{values['tag']}{f'@sha256:{digest}' if digest else ''}"
    for member in values.values():
        yield from named_images(member)
