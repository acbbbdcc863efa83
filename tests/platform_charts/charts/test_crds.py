"""CRDs from charts and folders, and which upgrades are safe."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.spec.errors import RefusedError, SettingsError
from infra.spec.manifest import Manifest, annotated
from infra.spec.release import load_release
from platform_charts.charts.archives import archive_path
from platform_charts.charts.crds import (
    CHART_VERSION,
    CRD_GROUPS,
    CrdFolder,
    PinnedCharts,
    check_crd_upgrade,
    check_crd_upgrades,
    not_older,
    of_deployed_charts,
)
from tests.platform_charts.charts.archives import archive, crd, write_archives

RAY = "ray.io"


def versions(**served: bool) -> list[dict[str, Any]]:
    """CRD versions, served or not; the last one is the storage version."""
    last = list(served)[-1]
    return [{"name": name, "served": is_served, "storage": name == last} for name, is_served in served.items()]


def stored(manifest: Manifest, *names: str) -> Manifest:
    """The CRD with stored versions in its status."""
    return {**manifest, "status": {"storedVersions": list(names)}}


def names(manifests: tuple[Manifest, ...]) -> list[str]:
    return [one["metadata"]["name"] for one in manifests]


def test_every_group_is_found_in_the_archive_of_its_chart(tmp_path: Path) -> None:
    pinned = PinnedCharts(write_archives(load_release(), tmp_path), folder=tmp_path)
    for group in CRD_GROUPS.values():
        assert names(pinned.crds(group)) == [f"widgets.{group}"]


def test_crds_of_subcharts_are_found_and_other_files_are_not(tmp_path: Path) -> None:
    release = load_release()
    files = {
        "kuberay-operator/crds/b.yaml": yaml.safe_dump(crd("bees", RAY)),
        "kuberay-operator/charts/inner/crds/a.yaml": yaml.safe_dump(crd("ants", RAY)),
        "kuberay-operator/crds/other.yaml": yaml.safe_dump(crd("cats", "example.com")),
        "kuberay-operator/templates/wasp.yaml": yaml.safe_dump(crd("wasps", RAY)),
        "kuberay-operator/crds/README.md": "crds",
    }
    name = "kuberay-operator"
    archive_path(name, release.charts[name], folder=tmp_path).write_bytes(archive(files))
    assert names(PinnedCharts(release, folder=tmp_path).crds(RAY)) == ["ants.ray.io", "bees.ray.io"]


def test_a_missing_archive_one_without_crds_of_the_group_and_an_unknown_group_are_errors(tmp_path: Path) -> None:
    release = load_release()
    pinned = PinnedCharts(release, folder=tmp_path)
    with pytest.raises(SettingsError, match="no such archive") as caught:
        pinned.crds(RAY)
    assert "make charts" in caught.value.remedy
    path = archive_path("kuberay-operator", release.charts["kuberay-operator"], folder=tmp_path)
    path.write_bytes(archive({"kuberay-operator/Chart.yaml": "name: kuberay-operator"}))
    with pytest.raises(SettingsError, match=r"kuberay-operator-.*tgz: no CRD of group ray\.io"):
        pinned.crds(RAY)
    with pytest.raises(SettingsError, match=r"no chart has CRDs of group example\.com"):
        pinned.crds("example.com")


def test_a_folder_is_searched_recursively_for_the_group(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    both = [crd("ants", RAY), crd("cats", "example.com")]
    (tmp_path / "deep" / "two.yaml").write_text(yaml.safe_dump_all(both), encoding="utf-8")
    assert names(CrdFolder(tmp_path).crds(RAY)) == ["ants.ray.io"]
    with pytest.raises(SettingsError, match=r"no CRD of group kueue\.x-k8s\.io"):
        CrdFolder(tmp_path).crds("kueue.x-k8s.io")


def test_an_equals_sign_is_text(tmp_path: Path) -> None:
    text = yaml.safe_dump(crd("ants", RAY)) + "x-match: [=, '!=']\n"
    (tmp_path / "one.yaml").write_text(text, encoding="utf-8")
    (found,) = CrdFolder(tmp_path).crds(RAY)
    assert found["x-match"] == ["=", "!="]


def test_an_upgrade_may_add_versions_and_change_the_storage_version() -> None:
    old = stored(crd("ants", RAY, versions=versions(v1alpha1=True, v1=True)), "v1alpha1", "v1")
    check_crd_upgrade(old, crd("ants", RAY, versions=versions(v1alpha1=True, v1=True, v2=True)))


def test_a_breaking_upgrade_is_refused() -> None:
    both, last = versions(v1alpha1=True, v1=True), versions(v1=True)
    unserved = versions(v1alpha1=False, v1=True)
    lacks = "version v1alpha1 has stored objects, and the new CRD lacks it"
    changes: list[tuple[Manifest, dict[str, Any], str]] = [
        (crd("ants", RAY, versions=both), {"versions": unserved}, "version v1alpha1 would no longer be served"),
        (stored(crd("ants", RAY, versions=unserved), "v1alpha1", "v1"), {"versions": last}, lacks),
        (
            crd("ants", RAY, versions=last),
            {"versions": versions(v2=True)},
            r"no longer be served\n  version v1 has stored objects",
        ),
        (crd("ants", RAY), {"scope": "Cluster"}, "scope: Namespaced would become Cluster"),
        (crd("ants", RAY), {"names": {"plural": "ants", "kind": "Aunt"}}, r"names\.kind: Ant would become Aunt"),
    ]
    for old, new, message in changes:
        with pytest.raises(RefusedError, match=rf"^CRD ants\.ray\.io cannot be upgraded:\n  .*{message}"):
            check_crd_upgrade(old, crd("ants", RAY, **new))
    with pytest.raises(ValueError, match=r"ants\.ray\.io is not upgraded to bees\.ray\.io"):
        check_crd_upgrade(crd("ants", RAY), crd("bees", RAY))


def test_only_crds_in_the_cluster_are_compared() -> None:
    narrowed = crd("ants", RAY, scope="Cluster")
    check_crd_upgrades([crd("bees", RAY)], [narrowed])
    with pytest.raises(RefusedError, match="scope"):
        check_crd_upgrades([crd("bees", RAY), crd("ants", RAY)], [narrowed])


def test_an_older_crd_does_not_take_the_place_of_a_newer_one() -> None:
    old, new = (annotated(crd("ants", RAY), CHART_VERSION, version) for version in ("1.5.1", "1.10.0"))
    assert not_older([old], [new]) == ()
    assert not_older([new], [old]) == (new,)
    assert not_older([old], [old]) == (old,)
    assert not_older([old], []) == (old,)
    assert not_older([old], [crd("ants", RAY)]) == (old,), "something else applied it"


def test_crds_are_read_anew_where_the_archive_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = write_archives(load_release(), tmp_path)
    (first,) = PinnedCharts(release, folder=tmp_path).crds(RAY)
    parsed: list[str] = []

    def documents(path: Path) -> list[Manifest]:
        parsed.append(path.name)
        return []

    monkeypatch.setattr("platform_charts.charts.crds._documents_in_archive", documents)
    assert PinnedCharts(release, folder=tmp_path).crds(RAY) == (first,)
    assert parsed == []
    file = next(tmp_path.glob("kuberay-operator-*.tgz"))
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(SettingsError, match="no CRD"):
        PinnedCharts(release, folder=tmp_path).crds(RAY)
    assert parsed == [file.name]


def test_crds_of_a_chart_that_is_not_deployed_yet_differ_from_nothing() -> None:
    old, new, added = (
        annotated(crd(name, RAY), CHART_VERSION, version)
        for name, version in (("ants", "1.5.1"), ("ants", "1.10.0"), ("bees", "1.10.0"))
    )
    assert of_deployed_charts([new, added], [old]) == ()
    assert of_deployed_charts([new, added], [new]) == (new, added), "one was deleted"
    assert of_deployed_charts([new, added], []) == (new, added), "all were"
    assert of_deployed_charts([new, added], [crd("ants", RAY), added]) == (new, added), "one was changed by hand"


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
