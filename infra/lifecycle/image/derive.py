"""Build plan of an image derived from the release's trainer: its packages in one layer, its user and environment unchanged."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from infra.lifecycle.image.plan import EPOCH, EngineBuild
from infra.lifecycle.image.recipes import ImageName
from infra.packages.derived import TAG_PREFIX, image_target, manifest_annotations
from infra.packages.overlay import Overlay
from infra.spec.release import ReleaseManifest

DOCKERFILE = Path(__file__).with_name("derived") / "Dockerfile"


def derive(overlay: Overlay, release: ReleaseManifest, repository: str, *, base: ImageName = "trainer") -> EngineBuild:
    """Plan the image with some packages. Equal packages on an equal base give an equal tag.

    Args:
        overlay: the packages, installed for the image's Python.
        release: the release; the image has a digest.
        repository: registry and repository of the environment's trainer image.
        base: what to derive from.
    """
    digest = release.images[base].digest
    assert digest is not None, "only a pushed image can be the base of another"
    recorded = manifest_annotations(overlay.contents, base=digest)
    arguments = {
        "TRAINER_IMAGE": f"{repository}@{digest}",
        "PYTHON": image_target(release).python,
        "PACKAGES": " ".join(f"{one.name}=={one.version}" for one in overlay.contents),
        "SOURCE_DATE_EPOCH": str(EPOCH),
    }
    # Not the host of the registry: the same image in two environments has one tag.
    counted = [digest, overlay.lock.read_text(encoding="utf-8"), DOCKERFILE.read_text(encoding="utf-8")]
    identity = hashlib.sha256(json.dumps(counted).encode()).hexdigest()[:12]
    return EngineBuild(
        image=base,
        dockerfile=DOCKERFILE,
        context=overlay.lock.parent,
        target="derived",
        arguments=arguments,
        tag=f"{TAG_PREFIX}{identity}",
        annotations=recorded,
    )
