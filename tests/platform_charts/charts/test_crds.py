"""Definitions out of pinned charts and folders, and which of them may replace which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.spec.errors import RefusedError, SettingsError
from infra.spec.manifest import Manifest
from infra.spec.release import load_release
from platform_charts.charts.archives import archive_path
from platform_charts.charts.crds import CRD_GROUPS, CrdFolder, PinnedCharts, check_upgrade, check_upgrades
from tests.platform_charts.charts.archives import archive, definition, keep

RAY = "ray.io"


def versions(**served: bool) -> list[dict[str, Any]]:
    """Versions by name, served or not; objects are stored in the last one."""
    last = list(served)[-1]
    return [{"name": name, "served": is_served, "storage": name == last} for name, is_served in served.items()]


def stored(manifest: Manifest, *names: str) -> Manifest:
    """The definition as a cluster has it, with objects stored in these versions."""
    return {**manifest, "status": {"storedVersions": list(names)}}


def names(manifests: tuple[Manifest, ...]) -> list[str]:
    return [one["metadata"]["name"] for one in manifests]


@pytest.mark.parametrize("group", CRD_GROUPS.values())
def test_every_group_is_found_in_the_archive_of_its_chart(group: str, tmp_path: Path) -> None:
    release = keep(load_release(), tmp_path)
    assert names(PinnedCharts(release, folder=tmp_path).crds(group)) == [f"widgets.{group}"]


def test_definitions_of_charts_inside_the_chart_are_found_and_other_files_are_not(tmp_path: Path) -> None:
    release = load_release()
    files = {
        "kuberay-operator/crds/b.yaml": yaml.safe_dump(definition("bees", RAY)),
        "kuberay-operator/charts/inner/crds/a.yaml": yaml.safe_dump(definition("ants", RAY)),
        "kuberay-operator/crds/other.yaml": yaml.safe_dump(definition("cats", "example.com")),
        "kuberay-operator/templates/wasp.yaml": yaml.safe_dump(definition("wasps", RAY)),
        "kuberay-operator/crds/README.md": "crds",
    }
    name = "kuberay-operator"
    archive_path(name, release.charts[name], folder=tmp_path).write_bytes(archive(files))
    assert names(PinnedCharts(release, folder=tmp_path).crds(RAY)) == ["ants.ray.io", "bees.ray.io"]


def test_a_chart_without_definitions_of_the_group_is_refused(tmp_path: Path) -> None:
    release = load_release()
    path = archive_path("kuberay-operator", release.charts["kuberay-operator"], folder=tmp_path)
    path.write_bytes(archive({"kuberay-operator/Chart.yaml": "name: kuberay-operator"}))
    with pytest.raises(SettingsError, match=r"kuberay-operator-.*tgz: no custom resource definition of group ray\.io"):
        PinnedCharts(release, folder=tmp_path).crds(RAY)


def test_an_archive_that_was_not_fetched_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such archive") as caught:
        PinnedCharts(load_release(), folder=tmp_path).crds(RAY)
    assert "make charts" in caught.value.remedy


def test_a_group_that_no_chart_brings_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no chart brings definitions of example\.com"):
        PinnedCharts(load_release(), folder=tmp_path).crds("example.com")


def test_a_folder_is_searched_at_any_depth_for_the_group_only(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    both = [definition("ants", RAY), definition("cats", "example.com")]
    (tmp_path / "deep" / "two.yaml").write_text(yaml.safe_dump_all(both), encoding="utf-8")
    assert names(CrdFolder(tmp_path).crds(RAY)) == ["ants.ray.io"]
    with pytest.raises(SettingsError, match=r"no custom resource definition of group kueue\.x-k8s\.io"):
        CrdFolder(tmp_path).crds("kueue.x-k8s.io")


def test_an_equals_sign_is_text_as_go_writes_it(tmp_path: Path) -> None:
    text = yaml.safe_dump(definition("ants", RAY)) + "x-match: [=, '!=']\n"
    (tmp_path / "one.yaml").write_text(text, encoding="utf-8")
    (found,) = CrdFolder(tmp_path).crds(RAY)
    assert found["x-match"] == ["=", "!="]


def test_a_definition_may_gain_versions_and_stop_storing_in_one_it_knows() -> None:
    old = stored(definition("ants", RAY, versions=versions(v1alpha1=True, v1=True)), "v1alpha1", "v1")
    check_upgrade(old, definition("ants", RAY, versions=versions(v1alpha1=True, v1=True, v2=True)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        pytest.param(
            definition("ants", RAY, versions=versions(v1alpha1=True, v1=True)),
            definition("ants", RAY, versions=versions(v1alpha1=False, v1=True)),
            "version v1alpha1 is served, and would not be any more",
            id="a version is not served any more",
        ),
        pytest.param(
            stored(definition("ants", RAY, versions=versions(v1alpha1=False, v1=True)), "v1alpha1", "v1"),
            definition("ants", RAY, versions=versions(v1=True)),
            "version v1alpha1 has stored objects, and the new definition does not know it",
            id="objects are stored in a version that goes",
        ),
        pytest.param(
            definition("ants", RAY, versions=versions(v1=True)),
            definition("ants", RAY, versions=versions(v2=True)),
            "version v1 has stored objects",
            id="no cluster says what is stored, and the storage version goes",
        ),
        pytest.param(
            definition("ants", RAY),
            definition("ants", RAY, scope="Cluster"),
            "scope: Namespaced would become Cluster",
            id="the scope changes",
        ),
        pytest.param(
            definition("ants", RAY),
            definition("ants", RAY, names={"plural": "ants", "kind": "Aunt"}),
            r"names\.kind: Ant would become Aunt",
            id="the kind changes",
        ),
    ],
)
def test_a_definition_that_takes_something_away_is_refused(old: Manifest, new: Manifest, message: str) -> None:
    with pytest.raises(RefusedError, match=message) as caught:
        check_upgrade(old, new)
    assert str(caught.value).startswith("definition ants.ray.io cannot be upgraded")


def test_only_definitions_that_the_cluster_has_are_compared() -> None:
    narrowed = definition("ants", RAY, scope="Cluster")
    check_upgrades([definition("bees", RAY)], [narrowed])
    with pytest.raises(RefusedError, match="scope"):
        check_upgrades([definition("bees", RAY), definition("ants", RAY)], [narrowed])


def test_definitions_of_two_names_are_not_compared() -> None:
    with pytest.raises(ValueError, match=r"ants\.ray\.io is not upgraded to bees\.ray\.io"):
        check_upgrade(definition("ants", RAY), definition("bees", RAY))
