"""Custom resource definitions for a cluster on which no chart is installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.kube.api import KubernetesApi
from infra.lifecycle.sandbox.modules import DEFINITIONS, OPERATORS
from infra.spec.errors import SettingsError
from infra.spec.manifest import Manifest
from infra.spec.release import load_release
from platform_charts.charts.archives import archive_path
from platform_charts.charts.crds import CRD_GROUPS, PinnedCharts


def read_definitions(folder: Path) -> tuple[Manifest, ...]:
    """Every custom resource definition in the YAML files of a folder and its folders.

    Raises:
        SettingsError: there is none.
    """
    documents = (
        document
        for file in sorted(folder.rglob("*.yaml"))
        # The C parser: KubeRay's definitions have 100,000 lines.
        for document in yaml.load_all(file.read_text(encoding="utf-8"), yaml.CSafeLoader)
    )
    found = tuple(one for one in documents if one is not None and one.get("kind") == "CustomResourceDefinition")
    if not found:
        raise SettingsError(f"{folder}: holds no YAML file with a CustomResourceDefinition")
    return found


def known_definitions(environment: Mapping[str, str]) -> tuple[Manifest, ...]:
    """Those in the charts that the release pins, as far as they have been fetched, else those of the built operators.

    Args:
        environment: see `modules.cache_root`.
    """
    found = {definition["metadata"]["name"]: definition for definition in _built_definitions(environment)}
    found |= {definition["metadata"]["name"]: definition for definition in _pinned_definitions()}
    return tuple(found.values())


def _built_definitions(environment: Mapping[str, str]) -> Iterator[Manifest]:
    for module in OPERATORS:
        folder = module.cache_folder(environment) / DEFINITIONS
        if folder.is_dir():
            yield from read_definitions(folder)


def _pinned_definitions() -> tuple[Manifest, ...]:
    release = load_release()
    fetched = (group for chart, group in CRD_GROUPS.items() if archive_path(chart, release.charts[chart]).is_file())
    return tuple(definition for group in fetched for definition in PinnedCharts(release).crds(group))


def define(api: KubernetesApi, definitions: Iterable[Manifest]) -> None:
    """Apply custom resource definitions and wait until their kinds are served.

    Raises:
        ApiError: one was refused, or is not served in time.
    """
    applied = [api.apply(definition) for definition in definitions]
    for definition in applied:
        api.await_(definition, _is_established, what="established")


def _is_established(definition: Mapping[str, Any]) -> bool:
    conditions = definition.get("status", {}).get("conditions") or []  # null at first
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)
