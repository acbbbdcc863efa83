"""The columns that the stack adds to KubeRay's RayJob CRD."""

from __future__ import annotations

import copy
from pathlib import Path

import yaml

from infra.spec.manifest import Manifest
from infra.spec.release import load_release
from platform_charts.charts.archives import archive_path
from platform_charts.charts.crds import CrdFolder, PinnedCharts
from tests.platform_charts.charts.archives import archive, crd

AGE = {"name": "age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}


def upstream(name: str = "rayjobs") -> Manifest:
    """A CRD of two versions with one column each, as KubeRay ships RayJob's."""
    made = crd(name, "ray.io")
    (version,) = made["spec"]["versions"]
    version["additionalPrinterColumns"] = [AGE]
    made["spec"]["versions"] = [version, {**copy.deepcopy(version), "name": "v1alpha1", "storage": False}]
    return made


def columns(found: Manifest) -> list[list[str]]:
    return [[one["name"] for one in version["additionalPrinterColumns"]] for version in found["spec"]["versions"]]


def test_every_version_of_rayjob_gets_the_columns_after_kuberays_own(tmp_path: Path) -> None:
    (tmp_path / "rayjobs.yaml").write_text(yaml.safe_dump(upstream()), encoding="utf-8")
    (found,) = CrdFolder(tmp_path).crds("ray.io")
    assert columns(found) == [["age", "progress", "time left", "reason", "message"]] * 2


def test_the_crd_in_the_pinned_chart_gets_them_too(tmp_path: Path) -> None:
    release, name = load_release(), "kuberay-operator"
    file = archive({f"{name}/crds/rayjobs.yaml": yaml.safe_dump(upstream())})
    archive_path(name, release.charts[name], folder=tmp_path).write_bytes(file)
    (found,) = PinnedCharts(release, folder=tmp_path).crds("ray.io")
    assert columns(found) == [["age", "progress", "time left", "reason", "message"]] * 2


def test_a_version_without_columns_of_its_own_keeps_its_age(tmp_path: Path) -> None:
    bare = upstream()
    for version in bare["spec"]["versions"]:
        del version["additionalPrinterColumns"]
    (tmp_path / "rayjobs.yaml").write_text(yaml.safe_dump(bare), encoding="utf-8")
    (found,) = CrdFolder(tmp_path).crds("ray.io")
    assert columns(found) == [["Age", "progress", "time left", "reason", "message"]] * 2


def test_other_crds_are_left_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "rayclusters.yaml").write_text(yaml.safe_dump(upstream("rayclusters")), encoding="utf-8")
    assert CrdFolder(tmp_path).crds("ray.io") == (upstream("rayclusters"),)
