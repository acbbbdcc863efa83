"""A release with the hashes that image builds need, and small checkouts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from infra.lifecycle.image import engines
from infra.lifecycle.image.recipes import RECIPES, ImageName
from infra.spec.release import RELEASE_FILE, ReleaseManifest
from infra.spec.release_rules import ROOT
from infra.spec.section import validate

EFA_SHA256 = "e" * 64
RDS_SHA256 = "a" * 64
BASE_DIGEST = f"sha256:{'b' * 64}"


def release(*, efa_sha256: str | None = EFA_SHA256, rds_sha256: str | None = RDS_SHA256) -> ReleaseManifest:
    """The shipped release with hashes of base image and downloads."""
    document = yaml.safe_load(RELEASE_FILE.read_text(encoding="utf-8"))
    document["downloads"]["efa-installer"]["sha256"] = efa_sha256
    document["downloads"]["rds-certificates"]["sha256"] = rds_sha256
    document["images"]["python-base"]["digest"] = BASE_DIGEST
    return validate(ReleaseManifest, document, file="release.yaml")


def fake_engine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a `buildah` that builds nothing on PATH, as the only engine.

    Returns:
        the file with the arguments of its calls; the file beside it, `calls.password`, has what `login` read.
    """
    program, calls = folder / "bin/buildah", folder / "calls"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n[ "$1" = login ] && cat >> {calls}.password\nexit 0\n')
    program.chmod(0o755)
    monkeypatch.setattr(engines, "ENGINES", (engines.Buildah(),))
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return calls


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "next")


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def checkout(folder: Path, image: ImageName) -> Path:
    """A committed checkout with the files of an image, all small."""
    recipe = RECIPES[image]
    for name in (recipe.dockerfile, recipe.lock, *recipe.context, *recipe.runtime):
        path = folder / name
        if (
            not path.suffix
            and not path.name.startswith(".")
            and name != ".make/environment"
            and path != folder / recipe.dockerfile
        ):
            path = path / "module.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"numpy==1 \\\n    --hash=sha256:{'0' * 64}\n" if path.suffix == ".lock" else f"{name}\n")
    shutil.copy(ROOT / ".dockerignore", folder)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "first")
    return folder
