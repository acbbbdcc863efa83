"""The release as a sandbox builds it: its base image, and the certificate authority of its database."""

from __future__ import annotations

import base64
import hashlib

from infra.lifecycle.image.plan import BASE, RDS_CERTIFICATES
from infra.spec.release import ReleaseManifest

NO_AUTHORITY = b"# This sandbox has no database with TLS.\n"
"""Certificates of a sandbox whose database needs none."""


def sandbox_release(release: ReleaseManifest, *, base: str, authority: bytes = NO_AUTHORITY) -> ReleaseManifest:
    """A release whose images are built on a base, and trust the database of a sandbox instead of RDS.

    Args:
        release: the release manifest.
        base: reference of the base image, by tag.
        authority: certificates in PEM that MLflow's server trusts for its database, in place of those that AWS publishes. They
            travel in a `data:` URL, which the build reads as it would read a download, and checks in the same way.
    """
    repository, _, tag = base.rpartition(":")
    image = release.images[BASE].model_copy(update={"repository": repository, "tag": tag, "digest": None})
    certificates = release.downloads[RDS_CERTIFICATES].model_copy(
        update={
            "url": f"data:application/x-pem-file;base64,{base64.b64encode(authority).decode()}",
            "sha256": hashlib.sha256(authority).hexdigest(),
        }
    )
    return release.model_copy(
        update={
            "images": {**release.images, BASE: image},
            "downloads": {**release.downloads, RDS_CERTIFICATES: certificates},
        }
    )
