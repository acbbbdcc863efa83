"""Resolving the shipped release manifest, against a local repository and registry."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
import yaml

from infra.lifecycle.release.lock import Open, Resolution, Resolved, Sources, resolve, write
from infra.spec.errors import SettingsError
from infra.spec.release import RELEASE_FILE, ReleaseManifest, load_release
from tests.infra.lifecycle.release import mirror
from tests.infra.lifecycle.release.mirror import Aws
from tests.infra.lifecycle.release.servers import IMAGE_INDEX, Site, served

TODAY = date(2030, 1, 2)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """A copy of the shipped manifest."""
    copy = tmp_path / "release.yaml"
    copy.write_text(RELEASE_FILE.read_text(encoding="utf-8"), encoding="utf-8")
    return copy


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A site that has every chart and image of the shipped manifest."""
    with served() as one:
        release = load_release()
        charts = {
            name: [{"version": chart.version or "1.0.0", "digest": f"{index:064x}"}]
            for index, (name, chart) in enumerate(release.charts.items())
        }
        one.add_index(yaml.safe_dump({"entries": charts}))
        for index, (name, chart) in enumerate(release.charts.items()):
            if chart.repository.startswith("oci://"):
                path = chart.repository.removeprefix("oci://").partition("/")[2]
                one.add_chart(f"{path}/{name}", str(chart.version), f"sha256:{index:064x}")
        for image in release.images.values():
            manifest = {"mediaType": IMAGE_INDEX, "manifests": [], "annotations": {"of": image.repository}}
            one.add_manifest(image.repository.partition("/")[2], image.tag, manifest)
        yield one


def sources(site: Site) -> Sources:
    """All sources; AWS has no add-on `coredns`."""
    return mirror.sources(site, Aws(absent=("coredns",)))


def open_names(release: ReleaseManifest) -> set[str]:
    """Dotted names of unresolved values."""
    return set(release.unresolved())


def test_every_found_value_is_written_and_reads_back(manifest: Path, site: Site) -> None:
    write(resolve(load_release(manifest), sources(site)), manifest, today=TODAY)
    by_hand = {"images.trainer.digest", "images.mlflow.digest", "downloads.efa-installer.sha256"}
    by_hand |= {"downloads.rds-certificates.sha256"}
    expected = {"addons.coredns.version", *by_hand}
    assert open_names(load_release(manifest)) == expected


def test_a_known_version_is_neither_resolved_nor_open(site: Site) -> None:
    release = load_release()
    resolution = resolve(release, sources(site))
    paths = [one.path for one in resolution.resolved] + [one.path for one in resolution.open]
    assert sorted(map(".".join, paths)) == sorted(release.unresolved())


def test_a_missing_value_is_reported_with_the_reason(site: Site) -> None:
    resolution = resolve(load_release(), sources(site))
    assert {".".join(one.path): one.reason.partition(":")[0] for one in resolution.open} == {
        "addons.coredns.version": "no add-on coredns",
        "images.trainer.digest": "ours",
        "images.mlflow.digest": "ours",
        "downloads.efa-installer.sha256": "by hand",
        "downloads.rds-certificates.sha256": "by hand",
    }


def known_values(node: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every value in a manifest except dates and sources."""
    if isinstance(node, dict):
        for key, member in node.items():
            yield from known_values(member, f"{path}.{key}")
    elif node is not None and not path.endswith((".as_of", ".source")):
        yield path, node


def test_comments_and_known_values_stay(manifest: Path, site: Site) -> None:
    before = manifest.read_text(encoding="utf-8")
    write(resolve(load_release(manifest), sources(site)), manifest, today=TODAY)
    after = manifest.read_text(encoding="utf-8")
    assert re.findall("# .*", after) == re.findall("# .*", before)
    assert dict(known_values(yaml.safe_load(before))).items() <= dict(known_values(yaml.safe_load(after))).items()


def test_an_entry_gets_the_date_and_keeps_its_first_source(manifest: Path, site: Site) -> None:
    write(resolve(load_release(manifest), sources(site)), manifest, today=TODAY)
    chart = load_release(manifest).charts["kuberay-operator"]
    assert chart.as_of == TODAY
    assert chart.source == f"ray-project/kuberay, tag v1.6.2; http://{site.host}/charts/index.yaml"


def test_both_amis_leave_their_source_on_the_node_image(manifest: Path, site: Site) -> None:
    write(resolve(load_release(manifest), sources(site)), manifest, today=TODAY)
    image = load_release(manifest).node_image
    assert image.as_of == TODAY
    assert image.source is not None
    assert image.source.endswith("SSM AL2023_x86_64_STANDARD; SSM AL2023_x86_64_NVIDIA")


def test_a_second_run_skips_resolved_values(manifest: Path, site: Site) -> None:
    write(resolve(load_release(manifest), sources(site)), manifest, today=TODAY)
    asked = len(site.requests)
    again = resolve(load_release(manifest), sources(site))
    assert (again.resolved, len(again.open), len(site.requests)) == ((), 5, asked)


def test_a_malformed_answer_is_refused_and_the_file_stays(manifest: Path) -> None:
    before = manifest.read_text(encoding="utf-8")
    wrong = Resolved(("charts", "kueue", "sha256"), "not-a-hash", "nobody")
    with pytest.raises(SettingsError, match=r"charts\.kueue\.sha256"):
        write(Resolution((wrong,), ()), manifest, today=TODAY)
    assert manifest.read_text(encoding="utf-8") == before


def test_nothing_found_changes_nothing(manifest: Path) -> None:
    before = manifest.read_text(encoding="utf-8")
    write(Resolution((), (Open(("charts", "kueue", "sha256"), "away"),)), manifest, today=TODAY)
    assert manifest.read_text(encoding="utf-8") == before


def test_a_new_version_gets_a_new_source(manifest: Path) -> None:
    found = (
        Resolved(("charts", "kueue", "version"), "0.20.0", "new"),
        Resolved(("charts", "kueue", "sha256"), "0" * 64, "new"),
    )
    write(Resolution(found, ()), manifest, today=TODAY)
    chart = load_release(manifest).charts["kueue"]
    assert (chart.version, chart.source, chart.as_of) == ("0.20.0", "new", TODAY)


def test_a_confirmed_entry_gets_the_date_and_keeps_its_source(manifest: Path) -> None:
    before = load_release(manifest)
    entries = [
        ("charts", "kueue"),
        ("kubernetes",),
        ("node_image", "releases", "AL2023_x86_64_STANDARD"),
        ("stack", "ray"),
    ]
    write(Resolution((), ()), manifest, today=TODAY, confirmed=entries)
    after = load_release(manifest)
    assert (after.charts["kueue"].as_of, after.kubernetes.as_of) == (TODAY, TODAY)
    assert (after.node_image.as_of, after.stack.as_of) == (before.node_image.as_of, before.stack.as_of)
    assert after.charts["kueue"].source == before.charts["kueue"].source


def test_an_addon_whose_default_is_below_the_minimum_gets_the_newest(site: Site) -> None:
    name = "eks-node-monitoring-agent"
    aws = Aws(default={name: "v1.6.7-eksbuild.1"}, known={name: "v1.6.7-eksbuild.1"}, newer={name: "v1.7.0-eksbuild.2"})
    found = {one.path: one.value for one in resolve(load_release(), mirror.sources(site, aws)).resolved}
    assert found["addons", name, "version"] == "v1.7.0-eksbuild.2"


def test_an_addon_without_a_version_above_the_minimum_stays_open(site: Site) -> None:
    name = "eks-node-monitoring-agent"
    aws = Aws(default={name: "v1.6.7-eksbuild.1"}, known={name: "v1.6.7-eksbuild.1"})
    reasons = {one.path: one.reason for one in resolve(load_release(), mirror.sources(site, aws)).open}
    assert "newest version of add-on" in reasons["addons", name, "version"]
    assert "must be 1.7.0 or newer" in reasons["addons", name, "version"]
