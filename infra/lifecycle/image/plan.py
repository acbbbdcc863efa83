"""Build plan of our own images: build arguments and tag.

Equal content gives an equal plan, at any commit, so that a second build gives the image that was tested.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from infra.lifecycle.image.recipes import RECIPES, RELEASED, ImageName, Recipe, Variant
from infra.lifecycle.image.source import Source, content_hash
from infra.spec.errors import RefusedError, SettingsError
from infra.spec.release import Download, ReleaseManifest

EPOCH = 315_532_800
"""Timestamp of every image and file in it: 1980-01-01, in seconds since 1970. It must be earlier than any build, because engines
only lower timestamps to it, and no earlier than what a ZIP file holds (APPNOTE.TXT, 4.4.6)."""
_SMALLER = 3
"""How much smaller the trainer's packages are, at least, with a torch without CUDA."""
BASE = "python-base"
EFA = "efa-installer"
RDS_CERTIFICATES = "rds-certificates"


@dataclass(frozen=True)
class Torch:
    """A build of torch other than the locked one.

    Attributes:
        version: e.g. 2.15.0+cpu.
        index: URL of the package index that has it; empty for pip's default.
    """

    version: str
    index: str


@dataclass(frozen=True, kw_only=True)
class EngineBuild:
    """What an engine builds, for one of the environment's repositories.

    Attributes:
        image: name in the release manifest of the image whose repository it is for.
        dockerfile: path of the Dockerfile.
        context: folder with the files that it copies.
        target: stage of the Dockerfile.
        arguments: build arguments.
        tag: tag of the image.
        annotations: of its manifest.
        runtime: identity of its stage `runtime`, see `image.runtime`; None without such a stage.
        room: most that building this stage writes to the engine's store and cache, in bytes.
    """

    image: ImageName
    dockerfile: Path
    context: Path
    target: str
    arguments: Mapping[str, str]
    tag: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    runtime: str | None = None
    room: int = 0


@dataclass(frozen=True, kw_only=True)
class Build(EngineBuild):
    """The input of one build of an image of ours.

    Attributes:
        variant: variant of the trainer or of a session; None for images without variants.
        revision: commit, for the SBOM; `-dirty` is appended if files differ from it. The image does not contain it.
        lock: lock file of its packages.
        python: minor version of the base image's Python, e.g. 3.11.
        torch: build of torch that replaces the locked one.
    """

    variant: Variant | None
    revision: str
    lock: Path
    python: str
    torch: Torch | None

    @property
    def is_released(self) -> bool:
        """Whether the release manifest pins this build's digest."""
        return self.variant in {None, RELEASED}


def torch_choice(variant: Variant, environment: Mapping[str, str] = os.environ) -> Torch | None:
    """The build of torch that replaces the locked one, from TORCH_VERSION and TORCH_INDEX.

    Raises:
        SettingsError: TORCH_VERSION is missing for variant cpu, or set for variant cuda.
    """
    version = environment.get("TORCH_VERSION", "")
    if variant == "cpu" and not version:
        raise SettingsError(
            "variant cpu: the locked torch is built for CUDA, and TORCH_VERSION is not set",
            remedy="make image VARIANT=cpu TORCH_VERSION=2.15.0+cpu TORCH_INDEX=ADDRESS; see CONTRIBUTING.md",
        )
    if variant == "cuda" and version:
        raise SettingsError(
            f"variant cuda: TORCH_VERSION is {version}, but this variant uses the locked torch",
            remedy="unset TORCH_VERSION, or build VARIANT=cpu",
        )
    return Torch(version, environment.get("TORCH_INDEX", "")) if version else None


def plan(
    image: ImageName,
    release: ReleaseManifest,
    source: Source,
    *,
    variant: Variant = RELEASED,
    torch: Torch | None = None,
) -> Build:
    """Plan a build.

    Args:
        image: name in the release manifest.
        release: the release manifest.
        source: the checkout.
        variant: variant of the trainer or of a session; ignored for mlflow.
        torch: build of torch that replaces the locked one.

    Raises:
        RefusedError: the hash of a download is unresolved.
    """
    recipe = RECIPES[image]
    lock = source.root / recipe.lock
    recorded: dict[str, str] = {
        "image": image,
        "version": release.platform,
        "base": release.images[BASE].reference(),
        "lock": recipe.lock,
        "lock-sha256": hashlib.sha256(lock.read_bytes()).hexdigest(),
    }
    parts = _trainer_parts(release, variant, torch) if recipe.has_variants else _mlflow_parts(release)
    recorded |= parts.recorded
    arguments = {
        "PYTHON_IMAGE": recorded["base"],
        **parts.arguments,
        "SOURCE_DATE_EPOCH": str(EPOCH),
        "VERSION": release.platform,
        "LOCK_SHA256": recorded["lock-sha256"],
        "BUILD": json.dumps(recorded),
    }
    target = {"trainer": variant, "session": f"session-{variant}"}.get(image, image)
    tag = [release.platform, *([target] if recipe.has_variants else []), _identity(source, target, arguments)]
    return Build(
        image=image,
        variant=variant if recipe.has_variants else None,
        dockerfile=source.root / recipe.dockerfile,
        context=source.root,
        target=target,
        arguments=arguments,
        tag="-".join(tag),
        runtime=_runtime_identity(source, recipe, arguments),
        room=recipe.room if torch is None else recipe.room // _SMALLER,
        revision=source.recorded_revision,
        lock=lock,
        python=release.stack.python,
        torch=torch,
    )


def require_pinned_base(release: ReleaseManifest) -> None:
    """Refuse to push an image whose base is named by a tag: the same build would have another base tomorrow.

    Raises:
        RefusedError: the digest of the base image is unresolved.
    """
    if release.images[BASE].digest is None:
        raise RefusedError(
            f"images.{BASE}.digest of infra/spec/release.yaml is unresolved; a pushed image has a pinned base",
            remedy="run `make release-lock` with access to the registries",
        )


def _identity(source: Source, target: str, arguments: Mapping[str, str]) -> str:
    """Identity of a build: files, target and arguments; not the address of a package index, of which there are mirrors."""
    counted = {name: value for name, value in arguments.items() if name != "TORCH_INDEX"}
    return _short_hash([source.content, target, counted])


def _runtime_identity(source: Source, recipe: Recipe, arguments: Mapping[str, str]) -> str:
    """Identity of a build without its code."""
    files = content_hash(source.root, sorted((recipe.dockerfile, recipe.lock, *recipe.runtime)))
    counted = {name: arguments.get(name, "") for name in ("PYTHON_IMAGE", "TORCH_VERSION", "SOURCE_DATE_EPOCH")}
    return _short_hash([files, counted])


def _short_hash(inputs: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]


class _Parts(NamedTuple):
    """Build arguments and record entries specific to one image.

    Attributes:
        arguments: build arguments.
        recorded: entries of the build record inside the image.
    """

    arguments: Mapping[str, str]
    recorded: Mapping[str, str]


def _trainer_parts(release: ReleaseManifest, variant: Variant, torch: Torch | None) -> _Parts:
    arguments: dict[str, str] = {}
    recorded: dict[str, str] = {"variant": variant, "torch": torch.version if torch else release.stack.torch}
    if torch is not None:
        arguments |= {"TORCH_VERSION": torch.version, "TORCH_INDEX": torch.index}
    if variant == "cuda":
        efa = release.downloads[EFA]
        digest = _sha256(EFA, efa)
        arguments |= {"EFA_URL": efa.address(), "EFA_SHA256": digest}
        recorded |= {"efa-installer": efa.version, "efa-installer-sha256": digest}
    return _Parts(arguments, recorded)


def _mlflow_parts(release: ReleaseManifest) -> _Parts:
    certificates = release.downloads[RDS_CERTIFICATES]
    digest = _sha256(RDS_CERTIFICATES, certificates)
    arguments = {"RDS_CERTIFICATES_URL": certificates.address(), "RDS_CERTIFICATES_SHA256": digest}
    return _Parts(arguments, {"rds-certificates-sha256": digest})


_PROOFS = {
    EFA: 'check its signature (EFA user guide, "Verify the EFA installer using a checksum")',
    RDS_CERTIFICATES: "compare it with a copy downloaded from another network, because it is not signed",
}
"""How a person verifies a download."""


def _sha256(name: str, download: Download) -> str:
    if download.sha256 is None:
        raise RefusedError(
            f"downloads.{name}.sha256 of infra/spec/release.yaml is unresolved; a build uses verified downloads only",
            remedy=f"download {download.address()}, {_PROOFS[name]}, and write its sha256 there",
        )
    return download.sha256
