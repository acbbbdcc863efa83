"""Releases with every image resolved, the charts of an environment, and the images in their values."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping

from infra.spec.catalog import load_catalog
from infra.spec.release import Image, ReleaseManifest, load_release
from infra.spec.settings.stack import StackSettings
from platform_charts.charts.installs import ChartInstall, chart_installs

REGISTRY = "111122223333.dkr.ecr.us-east-1.amazonaws.com/rtp"
"""The stack's ECR and the prefix of our repositories."""

FULL_REFERENCE = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+(:\d+)?(/[a-z0-9._-]+)+(:[\w][\w.-]*)?(@sha256:[0-9a-f]{64})?")
"""An image reference with a registry's host, in the order host, repository, tag, digest; the host needs a dot."""

_ALERT_TOPIC = "arn:aws:sns:us-east-1:111122223333:rtp-alerts"


def digest_of(image: Image) -> str:
    """A fake digest, unique for every image."""
    return f"sha256:{hashlib.sha256(image.repository.encode()).hexdigest()}"


def with_digests(release: ReleaseManifest | None = None) -> ReleaseManifest:
    """The release with a digest for every image."""
    release = release or load_release()
    images = {name: one.model_copy(update={"digest": digest_of(one)}) for name, one in release.images.items()}
    return release.model_copy(update={"images": images})


def installs_of(
    settings: StackSettings, release: ReleaseManifest | None = None, *, caches: Mapping[str, str] | None = None
) -> Mapping[str, ChartInstall]:
    """The Helm releases of an environment."""
    release = release or load_release()
    return chart_installs(settings, release, load_catalog(), registry=REGISTRY, alert_topic=_ALERT_TOPIC, caches=caches)


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
