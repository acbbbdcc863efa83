"""What an image must have for a code folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from infra.lifecycle.image.recipes import RECIPES
from infra.packages.derived import (
    REMOVED,
    image_markers,
    image_platform,
    image_target,
    manifest_annotations,
    shortcomings,
)
from infra.packages.lock import Package
from infra.packages.requirements import missing_packages
from infra.spec.errors import SettingsError
from infra.spec.release import ReleaseManifest
from infra.spec.release_rules import ROOT
from tests.infra.lifecycle.image.dockerfile import read
from tests.infra.lifecycle.image.samples import release

BASE = f"sha256:{'1' * 64}"
MISSING = [Requirement("timm>=1"), Requirement("Einops")]


@pytest.fixture
def pushed() -> ReleaseManifest:
    found = release()
    return found.with_digests({"trainer": BASE, "session": f"sha256:{'3' * 64}"})


def told(pushed: ReleaseManifest, *packages: Package, base: str = BASE) -> list[str]:
    return list(shortcomings(manifest_annotations(packages, base=base), MISSING, pushed))


def test_an_image_with_the_packages_on_the_releases_trainer_will_do(pushed: ReleaseManifest) -> None:
    packages = [Package("timm", "1.0.1", ()), Package("einops", "0.8.2", ()), Package("x", "1", ())]
    assert told(pushed, *packages) == []
    assert told(pushed, Package("timm", "0.9", ())) == ["Einops: not installed", "timm>=1: has 0.9"]
    earlier = f"sha256:{'2' * 64}"
    derived = f"it was derived from {earlier}, the trainer of this release is {BASE}"
    assert told(pushed, *packages, base=earlier) == [derived]
    on_session = manifest_annotations(packages, base=f"sha256:{'3' * 64}")
    assert list(shortcomings(on_session, MISSING, pushed)) == []
    assert next(iter(shortcomings({}, MISSING, pushed))).startswith("it was derived from an unknown image")


def test_the_images_python_is_that_of_its_base() -> None:
    tag = str(release().images["python-base"].tag)
    assert tag.startswith(f"{image_target(release()).python}-")
    assert image_markers(release())["python_version"] == image_target(release()).python


def test_packages_that_the_dockerfile_removes_are_not_in_the_image() -> None:
    steps = (ROOT / RECIPES["trainer"].dockerfile).read_text(encoding="utf-8")
    removed = {
        name for names in re.findall(r"-m pip uninstall --yes --quiet ([a-z ]+)", steps) for name in names.split()
    }
    unused = (ROOT / RECIPES["trainer"].unused).read_text(encoding="utf-8").splitlines()
    removed |= {line for line in unused if line and not set("#/") & set(line)}
    platform = image_platform(release(), ROOT / RECIPES["trainer"].lock)
    assert removed & set(platform.locked) == REMOVED
    assert platform.installed("setuptools") is None
    assert platform.version("setuptools") == platform.locked["setuptools"]


def test_code_that_asks_for_mlflow_is_content_with_its_client(tmp_path: Path) -> None:
    platform = image_platform(release(), ROOT / RECIPES["trainer"].lock)
    mlflow = release().stack.mlflow
    assert platform.installed("mlflow") == platform.installed("mlflow-skinny") == mlflow
    assert missing_packages(tmp_path, [Requirement("mlflow>=3"), Requirement("flask")], platform) == (
        Requirement("flask"),
    )
    with pytest.raises(SettingsError, match=f"mlflow<3: the platform has {mlflow}"):
        missing_packages(tmp_path, [Requirement("mlflow<3")], platform)


def test_the_trainer_image_has_no_lock_so_that_pods_check_packages_and_install_none() -> None:
    stages = read(ROOT / RECIPES["trainer"].dockerfile).stages
    assert "requirements-image.lock requirements.lock" in stages["environment"].values("COPY")
    for name in stages.keys() - {"environment", "jupyterlab"}:
        assert ".lock" not in " ".join(stages[name].values("COPY"))
