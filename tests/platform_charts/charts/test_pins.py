"""Versions in the release manifest, compared with the pinned charts' own; needs Helm and the archives."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from typing import Any

import yaml

from infra.spec.release import load_release
from platform_charts.charts.image_names import images_of
from tests.engines.helm import find_helm, find_pinned_archive, template
from tests.infra.aws.graphs import settings_of
from tests.platform_charts.charts.releases import installs_of

ENVIRONMENT = "prod"
"""An environment that installs every chart."""


def test_every_archive_has_the_pinned_versions() -> None:
    release = load_release()
    for name, chart in release.charts.items():
        with tarfile.open(find_pinned_archive(name)) as packed:
            file = packed.extractfile(f"{name}/Chart.yaml")
            assert file is not None
            head = yaml.safe_load(file.read())
        assert (head["name"], head["version"]) == (name, chart.version)
        # A chart without an image of its own version needs no app_version: its images are pinned by themselves.
        if chart.app_version is not None or any(image.chart == name for image in release.images.values()):
            wanted = str(chart.app_version or chart.version).removeprefix("v")
            assert str(head.get("appVersion", head["version"])).removeprefix("v") == wanted, name


def test_the_release_pins_the_images_that_the_charts_install_by_default() -> None:
    pinned = {f"{image.repository}:{image.tag}" for image in load_release().images.values()}
    for name, install in installs_of(settings_of(ENVIRONMENT)).items():
        archive, values = find_pinned_archive(name), without_images(install.values)
        manifests = template(find_helm(), archive, values, name=name, namespace=install.namespace)
        assert [image for image in images_of(manifests) if image not in pinned] == [], name


def without_images(values: Mapping[str, Any]) -> dict[str, Any]:
    """Chart values without our images, and without containers of ours."""
    return {
        key: without_images(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if key not in {"image", "initContainers"}
    }
