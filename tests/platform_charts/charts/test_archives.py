"""Chart archives: download from a repository, a registry or a mirror, and verification."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.lifecycle.release.registries import Registries
from infra.spec.errors import PlatformError, RefusedError, SettingsError
from infra.spec.protection import EnvironmentKind
from infra.spec.release import Chart
from platform_charts.charts.archives import archive_path, fetch_archive
from tests.infra.lifecycle.release.servers import Site, served
from tests.platform_charts.charts.archives import chart as packed

NAME = "operator"
CONTENT = packed(NAME, "1.7.0")
SHA256 = hashlib.sha256(CONTENT).hexdigest()
DEV, PROD = EnvironmentKind.DEV, EnvironmentKind.PROD


@pytest.fixture
def site() -> Iterator[Site]:
    """A server with the chart in a repository and in a registry."""
    with served() as one:
        one.add_index(
            f"entries: {{operator: [{{version: 1.7.0, urls: [files/operator-1.7.0.tgz], digest: {SHA256}}}]}}"
        )
        one.pages["/charts/files/operator-1.7.0.tgz"] = (CONTENT, "application/gzip")
        one.add_chart(f"charts/{NAME}", "1.7.0", f"sha256:{SHA256}")
        one.pages[f"/v2/charts/{NAME}/blobs/sha256:{SHA256}"] = (CONTENT, "application/octet-stream")
        yield one


def chart_of(repository: str, sha256: str | None = SHA256) -> Chart:
    return Chart.model_construct(repository=repository, version="1.7.0", sha256=sha256)


def source(site: Site) -> Registries:
    return Registries(plain_hosts=[site.host], timeout_s=60)


def test_the_pinned_archive_is_stored_by_name_and_version_and_not_downloaded_again(site: Site, tmp_path: Path) -> None:
    for scheme in ("http", "oci"):
        chart, folder = chart_of(f"{scheme}://{site.host}/charts"), tmp_path / scheme
        path = fetch_archive(NAME, chart, source=source(site), kind=PROD, folder=folder)
        assert path == folder / "operator-1.7.0.tgz" == archive_path(NAME, chart, folder=folder)
        assert path.read_bytes() == CONTENT
        assert list(folder.iterdir()) == [path]
        asked = len(site.requests)
        fetch_archive(NAME, chart, source=source(site), kind=PROD, folder=folder)
        assert len(site.requests) == asked


def test_a_modified_archive_is_downloaded_again(site: Site, tmp_path: Path) -> None:
    (tmp_path / "operator-1.7.0.tgz").write_bytes(b"changed")
    chart = chart_of(f"http://{site.host}/charts")
    assert fetch_archive(NAME, chart, source=source(site), kind=PROD, folder=tmp_path).read_bytes() == CONTENT


def test_an_archive_with_another_hash_is_rejected(site: Site, tmp_path: Path) -> None:
    wrong = chart_of(f"http://{site.host}/charts", "0" * 64)
    for kind in (DEV, PROD):
        with pytest.raises(RefusedError) as caught:
            fetch_archive(NAME, wrong, source=source(site), kind=kind, folder=tmp_path)
        assert f"chart operator 1.7.0 has sha256 {SHA256}, the release pins {'0' * 64}" in str(caught.value)
        assert list(tmp_path.iterdir()) == []


def test_a_mirror_replaces_the_repository_and_must_have_the_same_archive(site: Site, tmp_path: Path) -> None:
    options: dict[str, Any] = {"source": source(site), "kind": PROD, "mirror": f"oci://{site.host}/charts"}
    path = fetch_archive(NAME, chart_of("https://charts.invalid"), folder=tmp_path, **options)
    assert path.read_bytes() == CONTENT
    with pytest.raises(RefusedError, match="the release pins 1111"):
        fetch_archive(NAME, chart_of("https://charts.invalid", "1" * 64), folder=tmp_path, **options)


def test_an_unresolved_hash_is_a_warning_and_in_prod_an_error(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chart = chart_of(f"http://{site.host}/charts", None)
    with caplog.at_level(logging.WARNING):
        fetch_archive(NAME, chart, source=source(site), kind=DEV, folder=tmp_path)
    assert "charts.operator.sha256 is unresolved: operator-1.7.0.tgz will be installed unverified" in caplog.text
    with pytest.raises(RefusedError, match=r"charts\.operator\.sha256 is unresolved, which prod does not allow"):
        fetch_archive(NAME, chart, source=source(site), kind=PROD, folder=tmp_path)


def test_a_chart_without_a_version_is_rejected(site: Site, tmp_path: Path) -> None:
    chart = Chart.model_construct(repository="https://charts.invalid", version=None, sha256=None)
    with pytest.raises(SettingsError, match=r"charts\.operator\.version is unresolved"):
        fetch_archive(NAME, chart, source=source(site), kind=DEV, folder=tmp_path)


def test_a_missing_archive_is_an_error_with_a_remedy(site: Site, tmp_path: Path) -> None:
    chart = chart_of(f"http://{site.host}/elsewhere")
    with pytest.raises(
        PlatformError, match=r"chart operator 1\.7\.0: .*/elsewhere/index\.yaml: HTTP status 404"
    ) as caught:
        fetch_archive(NAME, chart, source=source(site), kind=DEV, folder=tmp_path)
    assert "mirrors.charts" in caught.value.remedy
