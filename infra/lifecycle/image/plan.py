"""Build plan of our own images: sources, build arguments and tag; and the digest in the release manifest."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from infra.spec.errors import PlatformError, RefusedError, SettingsError
from infra.spec.release import Download, Image, ReleaseManifest, load_release
from infra.spec.section import validate
from infra.spec.yaml_text import KeyPath, Scalar, edited, parse

ImageName = Literal["trainer", "mlflow"]
Variant = Literal["cuda", "cpu"]

IMAGES: tuple[ImageName, ...] = get_args(ImageName)
VARIANTS: tuple[Variant, ...] = get_args(Variant)
RELEASED: Variant = "cuda"
"""The variant of the trainer that the release pins; it runs on nodes without GPUs too."""

BASE = "python-base"
EFA = "efa-installer"
RDS_CERTIFICATES = "rds-certificates"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How an image is built.

    Attributes:
        dockerfile: path relative to the repository.
        lock: lock file of its Python packages.
        context: other paths of the repository in the build context; .dockerignore excludes everything else.
    """

    dockerfile: str
    lock: str
    context: tuple[str, ...]


_COMMON = ("requirements-bootstrap.lock", ".dockerignore")
_SHARED = (
    "infra/__init__.py",
    *(f"infra/spec/{name}.py" for name in ("__init__", "command_line", "errors", "output", "section", "yaml_text")),
)
"""Modules of the stack that the trainer imports."""

RECIPES: Mapping[ImageName, Recipe] = {
    "trainer": Recipe(
        dockerfile="training/image/Dockerfile",
        lock="requirements.lock",
        context=(*_COMMON, *_SHARED, ".make/environment", "pyproject.toml", "training", "tune", "observability"),
    ),
    "mlflow": Recipe(
        dockerfile="platform_charts/images/mlflow_server/Dockerfile",
        lock="platform_charts/images/mlflow_server/requirements.lock",
        context=(
            *_COMMON,
            "platform_charts/images/mlflow_server",
            "platform_charts/images/node_gate",
            "platform_charts/images/alert_webhook",
        ),
    ),
}


class Source(NamedTuple):
    """The checkout to build from.

    Attributes:
        root: folder of the repository.
        revision: commit.
        committed: commit time, in seconds since 1970.
        changed: files of the build context that differ from the commit.
    """

    root: Path
    revision: str
    committed: int
    changed: tuple[str, ...]


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
class Build:
    """The input of one build.

    Attributes:
        image: name in the release manifest.
        variant: variant of the trainer; None for images without variants.
        dockerfile: path of the Dockerfile.
        context: folder of the repository.
        target: stage of the Dockerfile.
        arguments: build arguments.
        tag: tag of the image.
        committed: timestamp of the image, in seconds since 1970, so that builds are reproducible.
        lock: lock file of its packages.
        torch: build of torch that replaces the locked one.
    """

    image: ImageName
    variant: Variant | None
    dockerfile: Path
    context: Path
    target: str
    arguments: Mapping[str, str]
    tag: str
    committed: int
    lock: Path
    torch: Torch | None

    @property
    def is_released(self) -> bool:
        """Whether the release manifest pins this build's digest."""
        return self.variant in {None, RELEASED}


def read_source(root: Path, image: ImageName) -> Source:
    """Read commit and changed files of an image's build context from git.

    Raises:
        PlatformError: the folder is not a git checkout with a commit.
    """
    recipe = RECIPES[image]
    head = _git(root, "show", "--no-patch", "--format=%H %ct", "HEAD").split()
    status = _git(root, "status", "--porcelain", "--", recipe.dockerfile, recipe.lock, *recipe.context)
    changed = tuple(line[3:] for line in status.splitlines())
    return Source(root=root, revision=head[0], committed=int(head[1]), changed=changed)


def _git(root: Path, *arguments: str) -> str:
    answer = subprocess.run(["git", "-C", str(root), *arguments], check=False, capture_output=True, text=True)
    if answer.returncode != 0:
        raise PlatformError(
            f"git {arguments[0]}: {answer.stderr.strip()}",
            remedy="build in a git checkout: the image tag contains the commit",
        )
    return answer.stdout


def require_committed(source: Source, image: ImageName) -> None:
    """Refuse to push a build with uncommitted changes.

    Raises:
        RefusedError: names the changed files.
    """
    if source.changed:
        raise RefusedError(
            f"{image}: not pushed, because files differ from the commit in its tag: {', '.join(source.changed)}",
            remedy="commit these files",
        )


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
        variant: variant of the trainer; ignored for mlflow.
        torch: build of torch that replaces the locked one.

    Raises:
        RefusedError: the hash of a download is unresolved.
    """
    recipe = RECIPES[image]
    has_variants = image == "trainer"
    lock = source.root / recipe.lock
    revision = source.revision + ("-dirty" if source.changed else "")
    recorded: dict[str, str] = {
        "image": image,
        "version": release.platform,
        "revision": revision,
        "base": release.images[BASE].reference(),
        "lock": recipe.lock,
        "lock-sha256": hashlib.sha256(lock.read_bytes()).hexdigest(),
    }
    parts = _trainer_parts(release, variant, torch) if has_variants else _mlflow_parts(release)
    recorded |= parts.recorded
    arguments = {
        "PYTHON_IMAGE": recorded["base"],
        **parts.arguments,
        "VERSION": release.platform,
        "REVISION": revision,
        "LOCK_SHA256": recorded["lock-sha256"],
        "BUILD": json.dumps(recorded),
    }
    tag = [release.platform, *([variant] if has_variants else []), source.revision[:12]]
    return Build(
        image=image,
        variant=variant if has_variants else None,
        dockerfile=source.root / recipe.dockerfile,
        context=source.root,
        target=variant if has_variants else image,
        arguments=arguments,
        tag="-".join([*tag, *(["dirty"] if source.changed else [])]),
        committed=source.committed,
        lock=lock,
        torch=torch,
    )


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


def contents(image: Image, release: ReleaseManifest) -> dict[str, str]:
    """The stack's versions of the packages that the release manifest records for an image."""
    return {package: str(getattr(release.stack, package)) for package in image.contains}


def write_digest(file: Path, image: ImageName, digest: str) -> None:
    """Write a pushed image's digest and package versions into the release manifest.

    Raises:
        SettingsError: the manifest would become invalid; the file stays unchanged.
    """
    release, text = load_release(file), file.read_text(encoding="utf-8")
    changes: dict[KeyPath, Scalar] = {("images", image, "digest"): digest}
    for package, version in contents(release.images[image], release).items():
        if release.images[image].contains[package] != version:
            changes["images", image, "contains", package] = version
    changed, title = edited(text, changes), f"{file.name} with the digest of {image}"
    validate(ReleaseManifest, parse(changed, source=title).value, file=title)
    file.write_text(changed, encoding="utf-8")
    load_release.cache_clear()
