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


def test_every_version_of_rayjob_gets_the_columns_after_its_own_in_a_folder_and_in_the_pinned_chart(
    tmp_path: Path,
) -> None:
    release, name, text = load_release(), "kuberay-operator", yaml.safe_dump(upstream())
    (tmp_path / "rayjobs.yaml").write_text(text, encoding="utf-8")
    packed = archive({f"{name}/crds/rayjobs.yaml": text})
    archive_path(name, release.charts[name], folder=tmp_path).write_bytes(packed)
    for source in (CrdFolder(tmp_path), PinnedCharts(release, folder=tmp_path)):
        (found,) = source.crds("ray.io")
        assert columns(found) == [["age", "progress", "time left", "reason", "message"]] * 2


def test_a_version_without_columns_of_its_own_keeps_its_age_and_other_crds_are_left_as_they_are(tmp_path: Path) -> None:
    bare = upstream()
    for version in bare["spec"]["versions"]:
        del version["additionalPrinterColumns"]
    both = yaml.safe_dump_all([upstream("rayclusters"), bare])
    (tmp_path / "both.yaml").write_text(both, encoding="utf-8")
    other, found = CrdFolder(tmp_path).crds("ray.io")
    assert columns(found) == [["Age", "progress", "time left", "reason", "message"]] * 2
    assert other == upstream("rayclusters")
