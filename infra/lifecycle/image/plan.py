"""Our own images: what each is built of, under what name it is kept, and what the release manifest then says of it."""

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
"""The variant of the trainer that the release names: it runs on nodes without GPUs as well."""

BASE = "python-base"
EFA = "efa-installer"
RDS_CERTIFICATES = "rds-certificates"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How an image is built.

    Attributes:
        dockerfile: its Dockerfile, relative to the repository.
        lock: lock of its Python packages.
        context: what of the repository goes into it beside these two; .dockerignore lets nothing else through.
    """

    dockerfile: str
    lock: str
    context: tuple[str, ...]


_COMMON = ("requirements-bootstrap.lock", ".dockerignore")
_SHARED = (
    "infra/__init__.py",
    *(f"infra/spec/{name}.py" for name in ("__init__", "command_line", "errors", "section", "yaml_text")),
)
"""What the trainer imports of the stack."""

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
    """The checkout that is built.

    Attributes:
        root: folder of the repository.
        revision: commit.
        committed: when it was committed, in seconds since 1970.
        changed: files of the context that differ from the commit.
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
        index: address of the package index that has it; empty is the usual one.
    """

    version: str
    index: str


@dataclass(frozen=True, kw_only=True)
class Build:
    """Everything one build is told.

    Attributes:
        image: name in the release manifest.
        variant: variant of the trainer; None where there is one only.
        dockerfile: path of the Dockerfile.
        context: folder of the repository.
        target: stage of the Dockerfile.
        arguments: build arguments.
        tag: tag under which it is kept.
        committed: the image's time, in seconds since 1970: the same source gives the same image.
        lock: lock of its packages.
        torch: build of torch that takes the place of the locked one.
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
        """Whether it is the build whose digest the release manifest has."""
        return self.variant in {None, RELEASED}


def read_source(root: Path, image: ImageName) -> Source:
    """What git says of the checkout, as far as it goes into an image.

    Raises:
        PlatformError: the folder is no git checkout with a commit.
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
            remedy="an image is named by the commit it is built from: build in a git checkout",
        )
    return answer.stdout


def require_committed(source: Source, image: ImageName) -> None:
    """Refuse to push what no commit has.

    Raises:
        RefusedError: names the files that differ.
    """
    if source.changed:
        raise RefusedError(
            f"{image}: not pushed, its revision would not say what is in it; changed: {', '.join(source.changed)}",
            remedy="commit these files",
        )


def torch_choice(variant: Variant, environment: Mapping[str, str] = os.environ) -> Torch | None:
    """The build of torch that a variant gets in place of the locked one, by TORCH_VERSION and TORCH_INDEX.

    Raises:
        SettingsError: the variant needs another build and none is named, or is the locked one and another is named.
    """
    version = environment.get("TORCH_VERSION", "")
    if variant == "cpu" and not version:
        raise SettingsError(
            "variant cpu: the locked torch is built for CUDA, and TORCH_VERSION names no other build",
            remedy="make image VARIANT=cpu TORCH_VERSION=2.15.0+cpu TORCH_INDEX=ADDRESS; see CONTRIBUTING.md",
        )
    if variant == "cuda" and version:
        raise SettingsError(
            f"variant cuda: TORCH_VERSION is {version}, this variant has the locked torch",
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
    """What to build.

    Args:
        image: name in the release manifest.
        release: the release manifest.
        source: the checkout.
        variant: variant of the trainer; MLflow has one only.
        torch: build of torch that takes the place of the locked one.

    Raises:
        RefusedError: the hash of what the build downloads is unresolved.
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
    """What goes into one image alone.

    Attributes:
        arguments: build arguments.
        recorded: what the image says of it.
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
    RDS_CERTIFICATES: "compare it with what AWS serves in another network: it is not signed",
}
"""How a person makes sure of a download."""


def _sha256(name: str, download: Download) -> str:
    if download.sha256 is None:
        raise RefusedError(
            f"downloads.{name}.sha256 of infra/spec/release.yaml is unresolved; nothing is built of what nobody has checked",
            remedy=f"download {download.address()}, {_PROOFS[name]}, and write its sha256 there",
        )
    return download.sha256


def contents(image: Image, release: ReleaseManifest) -> dict[str, str]:
    """Versions inside an image of ours, under the names that the release manifest records for it."""
    return {package: str(getattr(release.stack, package)) for package in image.contains}


def write_digest(file: Path, image: ImageName, digest: str) -> None:
    """Write what was pushed into the release manifest: the digest, and the versions of the stack it was built with.

    Raises:
        SettingsError: the manifest would no longer be one; the file is left as it was.
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
