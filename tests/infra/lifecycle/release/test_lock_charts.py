"""From an unresolved release to a cluster's charts: locked, fetched, verified and rendered, with local servers."""

from __future__ import annotations

import base64
import hashlib
import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto import mock_aws

from infra.lifecycle.release.lock import resolve, write
from infra.lifecycle.release.registries import Registries, ecr_login
from infra.spec.errors import NotFoundError, RefusedError
from infra.spec.protection import EnvironmentKind
from infra.spec.release import RELEASE_FILE, ReleaseManifest, load_release
from platform_charts.charts.archives import fetch_archives
from platform_charts.charts.crds import CRD_GROUPS, PinnedCharts
from tests.engines.helm import find_helm, template
from tests.infra.aws.graphs import settings_of
from tests.infra.lifecycle.release.mirror import Mirror, add_image, sources
from tests.infra.lifecycle.release.servers import Site, served
from tests.platform_charts.charts.archives import charts
from tests.platform_charts.charts.releases import installs_of, named_images

PROD = EnvironmentKind.PROD
LOGIN = base64.b64encode(b"AWS:password").decode()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Every chart and image of the shipped release, on one host."""
    release = load_release()
    with served() as one:
        index: dict[str, list[dict[str, Any]]] = {}
        for name, content in charts(release).items():
            chart, digest = release.charts[name], hashlib.sha256(content).hexdigest()
            file = f"/charts/{name}.tgz"
            one.pages[file] = (content, "application/gzip")
            index[name] = [{"version": chart.version, "digest": digest, "urls": [f"{name}.tgz"]}]
            path = f"{chart.repository.removeprefix('oci://').partition('/')[2]}/{name}"
            one.add_chart(path, str(chart.version), f"sha256:{digest}")
            one.pages[f"/v2/{path}/blobs/sha256:{digest}"] = (content, "application/octet-stream")
        one.add_index(yaml.safe_dump({"entries": index}))
        for image in release.images.values():
            add_image(one, image)
        yield one


@pytest.fixture(scope="module")
def locked(site: Site, tmp_path_factory: pytest.TempPathFactory) -> ReleaseManifest:
    """The shipped release after `release-lock`."""
    file = shutil.copy(RELEASE_FILE, tmp_path_factory.mktemp("release") / "release.yaml")
    write(resolve(load_release(file), sources(site)), file, today=date(2030, 1, 2))
    return load_release(file)


@pytest.fixture(scope="module")
def folder(site: Site, locked: ReleaseManifest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every chart of the locked release, fetched as in prod."""
    found = tmp_path_factory.mktemp("charts")
    fetch_archives(locked, locked.charts, source=Mirror(site), kind=PROD, folder=found)
    return found


def test_every_chart_and_third_party_image_can_be_locked(locked: ReleaseManifest) -> None:
    still_open = [name for name in locked.unresolved() if name.startswith(("charts.", "images."))]
    assert still_open == ["images.trainer.digest", "images.mlflow.digest"]


def test_prod_installs_every_chart_as_locked_and_its_crds_come_from_there(
    locked: ReleaseManifest, folder: Path
) -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    assert found == {f"{name}-{chart.version}.tgz": chart.sha256 for name, chart in locked.charts.items()}
    source = PinnedCharts(locked, folder=folder)
    assert all(source.crds(group) for group in CRD_GROUPS.values())


def test_a_chart_that_changed_after_the_lock_is_refused(site: Site, locked: ReleaseManifest, tmp_path: Path) -> None:
    chart = locked.charts["kuberay-operator"].model_copy(update={"sha256": "0" * 64})
    changed = locked.model_copy(update={"charts": {"kuberay-operator": chart}})
    with pytest.raises(RefusedError, match=r"chart kuberay-operator 1\.6\.2 has sha256"):
        fetch_archives(changed, changed.charts, source=Mirror(site), kind=PROD, folder=tmp_path)


def test_every_locked_chart_renders_with_our_values_and_every_image_has_its_digest(
    locked: ReleaseManifest, folder: Path
) -> None:
    digests = {image.digest for image in locked.images.values()}
    for name, install in installs_of(settings_of("prod"), locked).items():
        images = sorted(named_images(install.values))
        assert images != [], name
        assert all(f"sha256:{image.rpartition(':')[2]}" in digests for image in images), name
        archive = folder / f"{name}-{locked.charts[name].version}.tgz"
        (shown,) = template(find_helm(), archive, install.values, name=name, namespace=install.namespace)
        assert sorted(named_images(yaml.safe_load(shown["data"]["values"]))) == images, name
        assert [image for image in images if "@sha256:" not in image] == [], name


def test_a_basic_challenge_gets_the_login(site: Site) -> None:
    site.login = LOGIN
    try:
        tag = load_release().images["kueue"].tag
        with pytest.raises(NotFoundError, match="requires Basic authentication"):
            Registries(plain_hosts=[site.host]).digest(f"{site.host}/kueue/kueue", tag)
        knowing = Registries(plain_hosts=[site.host], login={site.host: LOGIN}.get)
        assert knowing.digest(f"{site.host}/kueue/kueue", tag).value.startswith("sha256:")
    finally:
        site.login = ""


def test_only_ecr_registries_get_a_login_from_aws() -> None:
    asked: list[str] = []

    def client(region: str) -> Any:  # noqa: ANN401  # boto3's clients have no types
        asked.append(region)
        return boto3.client("ecr", region_name=region, aws_access_key_id="a", aws_secret_access_key="b")

    login = ecr_login(client)
    assert login("quay.io") is None
    assert asked == []
    with mock_aws():
        token = login("602401143452.dkr.ecr.us-west-2.amazonaws.com")
    assert token is not None
    assert base64.b64decode(token).startswith(b"AWS:")
    assert asked == ["us-west-2"]
