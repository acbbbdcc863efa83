"""Custom resource definitions: taken out of the pinned charts, applied by the stack, and upgraded only where that is safe.

Helm installs what lies in a chart's `crds/` once and never upgrades it (Helm, "Custom Resource Definitions"); a newer
operator then works with an older definition. So the stack applies them itself, before the release that needs them, and
keeps them when the stack goes: with a definition the API server deletes every object of it.

Kueue's are templates of its chart, whose conversion webhook has the release's names in it: there Helm does upgrade them.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol, cast

import yaml
from packaging.version import Version

from infra.spec.errors import RefusedError, SettingsError
from infra.spec.manifest import Manifest, annotated
from infra.spec.outputs import LABEL_PREFIX
from infra.spec.protection import EnvironmentKind
from infra.spec.release import ReleaseManifest
from platform_charts.charts.archives import ArchiveSource, archive_path, fetch

CRD_GROUPS: Mapping[str, str] = {
    "kube-prometheus-stack": "monitoring.coreos.com",
    "nvidia-device-plugin": "nfd.k8s-sigs.io",
    "kuberay-operator": "ray.io",
}
"""API group that the stack applies for a chart, in the order in which the charts are installed."""

CHART_VERSION = f"{LABEL_PREFIX}/chart-version"
"""Annotation of a definition: versions of an API stay while its fields change, so only this tells a downgrade."""

_KIND = "CustomResourceDefinition"
_CRD_MEMBER = re.compile(r"(^|/)crds/[^/]+\.ya?ml$")
"""Where a packaged chart, or a chart inside it, has its definitions."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # the one in C where there is one
    """Reads what Go writes: megabytes, and `=` as plain text, for which YAML 1.1 has a type of its own."""


_Loader.add_constructor("tag:yaml.org,2002:value", yaml.constructor.SafeConstructor.construct_yaml_str)


class CrdSource(Protocol):
    """Knows custom resource definitions."""

    def crds(self, group: str) -> tuple[Manifest, ...]:
        """Every definition of an API group, by name.

        Raises:
            SettingsError: there is none.
        """
        ...


class PinnedCharts:
    """The definitions inside the charts that the release pins.

    Args:
        release: says which chart in which version.
        folder: where the archives lie; None is where `platform_charts.charts.archives.fetch` puts them.
    """

    def __init__(self, release: ReleaseManifest, *, folder: Path | None = None) -> None:
        self._release = release
        self._folder = folder

    def crds(self, group: str) -> tuple[Manifest, ...]:
        """The definitions of the group in the archive of the chart that brings it.

        Raises:
            SettingsError: no chart of the release brings the group, the archive is not there, or holds none of it.
        """
        name = _chart_of(group)
        chart = self._release.charts[name]
        path = archive_path(name, chart, folder=self._folder)
        if not path.is_file():
            raise SettingsError(f"{path}: no such archive", remedy="fetch the charts: `make charts`")
        found = _of_group(_documents_in_archive(path), group, where=str(path))
        return tuple(annotated(one, CHART_VERSION, str(chart.version)) for one in found)


class FetchedCharts:
    """The same, from archives that are fetched where they are not there yet.

    Args:
        release: says which chart in which version.
        source: where archives are to be had.
        kind: what the environment is for; prod takes no chart whose hash is unresolved.
        mirror: repository to ask instead of the charts' own.
        folder: where archives are kept; None is where `platform_charts.charts.archives.fetch` puts them.
    """

    def __init__(
        self,
        release: ReleaseManifest,
        *,
        source: ArchiveSource,
        kind: EnvironmentKind,
        mirror: str | None = None,
        folder: Path | None = None,
    ) -> None:
        self._release = release
        self._fetch = partial(fetch, source=source, kind=kind, mirror=mirror, folder=folder)
        self._pinned = PinnedCharts(release, folder=folder)

    def crds(self, group: str) -> tuple[Manifest, ...]:
        """The definitions of the group in the archive of the chart that brings it.

        Raises:
            StackError: there is none, or the archive cannot be had; see `platform_charts.charts.archives.fetch`.
        """
        name = _chart_of(group)
        self._fetch(name, self._release.charts[name])
        return self._pinned.crds(group)


class CrdFolder:
    """Definitions as YAML files below a folder, as the projects publish them.

    Args:
        folder: the folder; files may lie at any depth.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def crds(self, group: str | None = None) -> tuple[Manifest, ...]:
        """The CRDs in the folder's files, of one group or of all.

        Raises:
            SettingsError: there is none.
        """
        texts = (path.read_text(encoding="utf-8") for path in sorted(self._folder.rglob("*.yaml")))
        return _of_group((one for text in texts for one in _documents(text)), group, where=str(self._folder))


def check_upgrade(old: Manifest, new: Manifest) -> None:
    """Refuse a definition that would lose objects or clients of the one it replaces.

    An older definition under a newer operator has made KubeRay delete workers; the way back, a definition without the
    version that objects are stored in, leaves them unreadable (Kubernetes, "Versions in CustomResourceDefinitions").

    Args:
        old: the definition in the cluster, with its status; or one of an earlier release, without.
        new: the definition that is to replace it.

    Raises:
        RefusedError: names everything that the new definition takes away.
        ValueError: the definitions are not of one name.
    """
    name = old["metadata"]["name"]
    if name != new["metadata"]["name"]:
        raise ValueError(f"{name} is not upgraded to {new['metadata']['name']}")
    losses = list(_losses(old, new))
    if losses:
        raise RefusedError(
            f"definition {name} cannot be upgraded:{''.join(f'{chr(10)}  {loss}' for loss in losses)}",
            remedy="go through a release that has both versions, and move the stored objects (storage version migration)",
        )


def check_upgrades(live: Iterable[Manifest], pinned: Iterable[Manifest]) -> None:
    """`check_upgrade` for every pinned definition that the cluster has in some version already.

    Raises:
        RefusedError: names the first definition that cannot be upgraded, and why.
    """
    before = {one["metadata"]["name"]: one for one in live}
    for one in pinned:
        if one["metadata"]["name"] in before:
            check_upgrade(before[one["metadata"]["name"]], one)


def _losses(old: Manifest, new: Manifest) -> Iterator[str]:
    before, after = _chart_version(old), _chart_version(new)
    if before is not None and after is not None and after < before:
        yield f"chart version {before} would become {after}; what is written then loses the fields of the newer one"
    for field, was, is_ in (
        ("scope", old["spec"]["scope"], new["spec"]["scope"]),
        ("names.kind", old["spec"]["names"]["kind"], new["spec"]["names"]["kind"]),
    ):
        if was != is_:
            yield f"{field}: {was} would become {is_}; objects of the one are not objects of the other"
    versions = {version["name"] for version in new["spec"]["versions"]}
    served = {version["name"] for version in new["spec"]["versions"] if version["served"]}
    for version in old["spec"]["versions"]:
        if version["served"] and version["name"] not in served:
            yield f"version {version['name']} is served, and would not be any more; clients use it"
    for version in _stored(old):
        if version not in versions:
            yield f"version {version} has stored objects, and the new definition does not know it"


def _stored(definition: Manifest) -> tuple[str, ...]:
    """Versions in which objects are stored; of a definition that no cluster has, the one it stores in."""
    stored = definition.get("status", {}).get("storedVersions")
    if stored:
        return tuple(stored)
    return tuple(version["name"] for version in definition["spec"]["versions"] if version["storage"])


def _chart_of(group: str) -> str:
    charts = [chart for chart, brought in CRD_GROUPS.items() if brought == group]
    if not charts:
        known = ", ".join(CRD_GROUPS.values())
        raise SettingsError(f"no chart brings definitions of {group} that the stack applies; known: {known}")
    return charts[0]


def _chart_version(definition: Manifest) -> Version | None:
    """Of the chart that a definition came with; None where somebody else has applied it."""
    text = definition["metadata"].get("annotations", {}).get(CHART_VERSION)
    return None if text is None else Version(text)


def _of_group(documents: Iterable[Manifest], group: str | None, *, where: str) -> tuple[Manifest, ...]:
    found = [one for one in documents if one.get("kind") == _KIND and group in {None, one["spec"]["group"]}]
    if not found:
        raise SettingsError(f"{where}: no custom resource definition{f' of group {group}' if group else ''}")
    return tuple(sorted(found, key=lambda one: cast("str", one["metadata"]["name"])))


def _documents_in_archive(path: Path) -> Iterator[Manifest]:
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and _CRD_MEMBER.search(member.name):
                content = archive.extractfile(member)
                assert content is not None, f"{member.name} is a file"
                yield from _documents(content.read().decode())


def _documents(text: str) -> Iterator[Manifest]:
    yield from (one for one in yaml.load_all(text, Loader=_Loader) if isinstance(one, dict))
