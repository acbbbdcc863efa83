"""From an unresolved release to a cluster's charts: locked, fetched, verified and rendered, with local servers."""

from __future__ import annotations

import hashlib
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from infra.lifecycle.release.lock import resolve, write
from infra.spec.protection import EnvironmentKind
from infra.spec.release import RELEASE_FILE, load_release
from platform_charts.charts.archives import fetch_archives
from platform_charts.charts.crds import CRD_GROUPS, PinnedCharts
from tests.engines.helm import find_helm, template
from tests.infra.aws.graphs import settings_of
from tests.infra.lifecycle.release.mirror import Mirror, add_image, sources
from tests.infra.lifecycle.release.servers import Site, served
from tests.platform_charts.charts.archives import charts
from tests.platform_charts.charts.releases import installs_of, named_images


def add_archives(site: Site) -> None:
    """Add every chart of the shipped release with its archive, and every image."""
    release, index = load_release(), dict[str, list[dict[str, Any]]]()
    for name, content in charts(release).items():
        chart, digest = release.charts[name], hashlib.sha256(content).hexdigest()
        site.pages[f"/charts/{name}.tgz"] = (content, "application/gzip")
        index[name] = [{"version": chart.version, "digest": digest, "urls": [f"{name}.tgz"]}]
        path = f"{chart.repository.removeprefix('oci://').partition('/')[2]}/{name}"
        site.add_chart(path, str(chart.version), f"sha256:{digest}")
        site.pages[f"/v2/{path}/blobs/sha256:{digest}"] = (content, "application/octet-stream")
    site.add_index(yaml.safe_dump({"entries": index}))
    for image in release.images.values():
        add_image(site, image)


def test_prod_installs_every_chart_as_locked_with_the_digest_of_every_image(tmp_path: Path) -> None:
    file, folder = Path(shutil.copy(RELEASE_FILE, tmp_path / "release.yaml")), tmp_path / "charts"
    folder.mkdir()
    with served() as site:
        add_archives(site)
        write(resolve(load_release(file), sources(site)), file, today=date(2030, 1, 2))
        locked = load_release(file)
        fetch_archives(locked, locked.charts, source=Mirror(site), kind=EnvironmentKind.PROD, folder=folder)
    still_open = [name for name in locked.unresolved() if name.startswith(("charts.", "images."))]
    assert still_open == ["images.trainer.digest", "images.session.digest", "images.mlflow.digest"]
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    assert found == {f"{name}-{chart.version}.tgz": chart.sha256 for name, chart in locked.charts.items()}
    source = PinnedCharts(locked, folder=folder)
    assert all(source.crds(group) for group in CRD_GROUPS.values())
    digests = {image.digest for image in locked.images.values()}
    for name, install in installs_of(settings_of("prod"), locked).items():
        images = sorted(named_images(install.values))
        assert images != [], name
        assert all("@sha256:" in image and f"sha256:{image.rpartition(':')[2]}" in digests for image in images), name
        archive = folder / f"{name}-{locked.charts[name].version}.tgz"
        (shown,) = template(find_helm(), archive, install.values, name=name, namespace=install.namespace)
        assert sorted(named_images(yaml.safe_load(shown["data"]["values"]))) == images, name
