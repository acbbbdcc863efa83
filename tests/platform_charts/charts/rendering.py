"""The charts rendered by Helm with our values; needs Helm and the archives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from infra.spec.manifest import Manifest
from tests.engines.helm import find_archive, find_helm, template
from tests.infra.aws.graphs import settings_of
from tests.platform_charts.charts.releases import installs_of, with_digests

_TEMPLATED = {"Deployment", "DaemonSet", "StatefulSet", "Job"}
"""Kinds with a pod template."""

_OPERATED = {"Prometheus", "Alertmanager"}
"""Kinds of custom resources that have the fields of a pod."""


@cache
def rendered(name: str, environment: str) -> tuple[Manifest, ...]:
    """The objects of a chart in an environment; skips without Helm or the archive."""
    install = installs_of(settings_of(environment), with_digests())[name]
    archive = find_archive(name)
    return tuple(template(find_helm(), archive, install.values, name=name, namespace=install.namespace))


def pods(manifests: Iterable[Manifest]) -> Iterator[tuple[Manifest, Manifest]]:
    """Every workload, and its pod spec."""
    for one in manifests:
        if one["kind"] in _TEMPLATED:
            yield one, one["spec"]["template"]["spec"]
        elif one["kind"] in _OPERATED:
            yield one, one["spec"]
