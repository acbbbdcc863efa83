"""Derive an image with the packages of a code folder from the release's trainer image, or that of sessions."""

from __future__ import annotations

from pathlib import Path

from infra.lifecycle.image import engines, sbom
from infra.lifecycle.image.derive import derive
from infra.lifecycle.image.ecr import EnvironmentRegistry
from infra.lifecycle.image.push import ImageRegistry, push
from infra.lifecycle.image.recipes import RECIPES, SESSION_LOCK, ImageName
from infra.lifecycle.options import ImageOptions
from infra.lifecycle.sandbox.images.running import running_sandbox
from infra.lifecycle.show import print_line
from infra.packages.derived import image_markers, image_platform, image_target
from infra.packages.overlay import overlay
from infra.packages.requirements import REQUIREMENTS_FILE, missing_packages, read_requirements
from infra.spec.errors import RefusedError, SettingsError
from infra.spec.release import ReleaseManifest, load_release
from infra.spec.release_rules import ROOT

OVERLAYS = Path(".local/packages")
"""Folder of installed packages, relative to the repository."""


def derived_image(options: ImageOptions) -> int:
    """Install the packages, build the image, push it, and print how a job names it.

    Nothing is built if the release's image has all that the folder requires.
    """
    folder, env, base = _checked(options)
    sandbox = running_sandbox(env)
    release = load_release().with_digests(sandbox.outputs.digests if sandbox else {})
    locks = [RECIPES[base].lock, *([SESSION_LOCK] if base == "session" else [])]
    platform = image_platform(release, *(ROOT / lock for lock in locks))
    requirements = read_requirements(folder, environment=image_markers(release))
    missing = missing_packages(folder, requirements, platform)
    if not missing:
        return _not_needed(folder, base)
    registry: ImageRegistry = sandbox.registry if sandbox else EnvironmentRegistry.open(env)
    _require_base(registry, release, env, base)
    builder = engines.find()
    found = overlay(missing, platform, image_target(release), root=ROOT / OVERLAYS, say=print_line)
    if not found.contents:
        return _not_needed(folder, base)
    repository = registry.repository(release.images[base])
    build = derive(found, release, repository, base=base)
    sbom.write(ROOT, build, sbom.derived_document(build, found.contents))
    digest = push(build, registry, builder)
    print_line(f"{build.tag} has {build.arguments['PACKAGES']}; train in it: make train ENV={env} CODE={folder} …")
    print_line(f"IMAGE={repository}@{digest}")
    return 0


def _checked(options: ImageOptions) -> tuple[Path, str, ImageName]:
    """The code folder, the environment, and which image to derive from."""
    folder = options.from_
    assert folder is not None, "the other command builds our own images"
    base = options.image or "trainer"
    if base == "mlflow" or options.variant != "cuda":
        raise SettingsError(
            "--from derives from the released images of the trainer and of sessions only",
            remedy="leave VARIANT out, and IMAGE too, or give IMAGE=session",
        )
    if options.env is None:
        raise SettingsError(
            "--from needs the environment whose registry has the trainer image and gets the derived one",
            remedy="name it with ENV=… (--env)",
        )
    if not folder.is_dir():
        raise SettingsError(f"--from {folder}: no such folder", remedy="FROM=… is the folder with your code")
    return folder, options.env, base


def _not_needed(folder: Path, base: ImageName) -> int:
    print_line(f"{folder / REQUIREMENTS_FILE} needs nothing that the {base} image lacks: submit without IMAGE=…")
    return 0


def _require_base(registry: ImageRegistry, release: ReleaseManifest, env: str, base: ImageName) -> None:
    """Refuse a registry without this image of this release."""
    for missing in registry.missing(release):
        if missing.name == base:
            raise RefusedError(
                f"{env} has no {base} image to derive from: {missing.reason}",
                remedy=f"push it: make image PUSH=1 IMAGE={base} ENV={env}",
            )
