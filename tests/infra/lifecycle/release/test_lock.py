"""Resolving the shipped release manifest, against a local repository and registry."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
import yaml

from infra.lifecycle.release.lock import Open, Resolution, Resolved, Sources, resolve, write
from infra.spec.errors import SettingsError
from infra.spec.release import RELEASE_FILE, load_release
from tests.infra.lifecycle.release import mirror
from tests.infra.lifecycle.release.mirror import Aws, add_release
from tests.infra.lifecycle.release.servers import Site, served

TODAY = date(2030, 1, 2)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    return Path(shutil.copy(RELEASE_FILE, tmp_path / "release.yaml"))


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with served() as one:
        add_release(one)
        yield one


@pytest.fixture(scope="module")
def locked(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = Path(shutil.copy(RELEASE_FILE, tmp_path_factory.mktemp("locked") / "release.yaml"))
    write(resolve(load_release(file), sources(site)), file, today=TODAY)
    return file


def sources(site: Site) -> Sources:
    """All sources; AWS has no add-on `coredns`."""
    return mirror.sources(site, Aws(absent=("coredns",)))


OPEN = {
    "addons.coredns.version": "no add-on coredns",
    "images.trainer.digest": "ours",
    "images.session.digest": "ours",
    "images.mlflow.digest": "ours",
    "downloads.efa-installer.sha256": "by hand",
    "downloads.rds-certificates.sha256": "by hand",
}
"""Values that are not found, and the beginning of the reason."""


def test_every_found_value_is_written_with_date_and_source(locked: Path, site: Site) -> None:
    release = load_release(locked)
    assert set(release.unresolved()) == set(OPEN)
    chart, image = release.charts["kuberay-operator"], release.node_image
    assert (chart.as_of, image.as_of) == (TODAY, TODAY)
    assert chart.source == f"ray-project/kuberay, tag v1.6.2; http://{site.host}/charts/index.yaml"
    assert str(image.source).endswith("SSM AL2023_x86_64_STANDARD; SSM AL2023_x86_64_NVIDIA")


def test_a_missing_value_has_a_reason_and_a_known_one_is_not_looked_for(site: Site) -> None:
    release = load_release()
    resolution = resolve(release, sources(site))
    paths = [one.path for one in resolution.resolved] + [one.path for one in resolution.open]
    assert sorted(map(".".join, paths)) == sorted(release.unresolved())
    assert {".".join(one.path): one.reason.partition(":")[0] for one in resolution.open} == OPEN


def known_values(node: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(node, dict):
        for key, member in node.items():
            yield from known_values(member, f"{path}.{key}")
    elif node is not None and not path.endswith((".as_of", ".source")):
        yield path, node


def test_comments_and_known_values_stay(locked: Path) -> None:
    before, after = (file.read_text(encoding="utf-8") for file in (RELEASE_FILE, locked))
    assert re.findall("# .*", after) == re.findall("# .*", before)
    assert dict(known_values(yaml.safe_load(before))).items() <= dict(known_values(yaml.safe_load(after))).items()


def test_a_second_run_skips_resolved_values(locked: Path, site: Site) -> None:
    asked = len(site.requests)
    again = resolve(load_release(locked), sources(site))
    assert (again.resolved, len(again.open), len(site.requests)) == ((), len(OPEN), asked)


def test_a_malformed_answer_is_refused_and_nothing_found_changes_nothing(manifest: Path) -> None:
    before = manifest.read_text(encoding="utf-8")
    wrong = Resolved(("charts", "kueue", "sha256"), "not-a-hash", "nobody")
    with pytest.raises(SettingsError, match=r"charts\.kueue\.sha256"):
        write(Resolution((wrong,), ()), manifest, today=TODAY)
    assert manifest.read_text(encoding="utf-8") == before
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
    ami = ("node_image", "releases", "AL2023_x86_64_STANDARD")
    entries = [("charts", "kueue"), ("kubernetes",), ami, ("stack", "ray")]
    write(Resolution((), ()), manifest, today=TODAY, confirmed=entries)
    after = load_release(manifest)
    assert (after.charts["kueue"].as_of, after.kubernetes.as_of) == (TODAY, TODAY)
    assert (after.node_image.as_of, after.stack.as_of) == (before.node_image.as_of, before.stack.as_of)
    assert after.charts["kueue"].source == before.charts["kueue"].source


def test_an_addon_whose_default_is_below_the_minimum_gets_the_newest_or_stays_open(site: Site) -> None:
    name = "eks-node-monitoring-agent"
    aws = Aws(default={name: "v1.6.7-eksbuild.1"}, known={name: "v1.6.7-eksbuild.1"})
    newer = replace(aws, newer={name: "v1.7.0-eksbuild.2"})
    found = {one.path: one.value for one in resolve(load_release(), mirror.sources(site, newer)).resolved}
    assert found["addons", name, "version"] == "v1.7.0-eksbuild.2"
    reasons = {one.path: one.reason for one in resolve(load_release(), mirror.sources(site, aws)).open}
    assert "newest version of add-on" in reasons["addons", name, "version"]
    assert "must be 1.7.0 or newer" in reasons["addons", name, "version"]
