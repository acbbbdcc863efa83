"""CRDs from the pinned charts, which the stack applies itself, and checks of their upgrades.

Helm installs a chart's `crds/` once and never upgrades them (Helm, "Custom Resource Definitions"), which leaves a newer
operator with older CRDs. The stack applies them before the release that needs them, and retains them on destroy, because
deleting a CRD deletes all of its objects.

Kueue's CRDs are templates of its chart, since their conversion webhook refers to the release's names; Helm upgrades those.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol, cast

from packaging.version import Version

from infra.spec.errors import RefusedError, SettingsError
from infra.spec.manifest import Manifest, annotated
from infra.spec.manifest_yaml import read_manifests
from infra.spec.node_labels import LABEL_PREFIX
from infra.spec.protection import EnvironmentKind
from infra.spec.release import ReleaseManifest
from platform_charts.charts.archives import ArchiveSource, archive_path, fetch_archive
from platform_charts.charts.job_columns import with_job_columns

CRD_GROUPS: Mapping[str, str] = {
    "kube-prometheus-stack": "monitoring.coreos.com",
    "nvidia-device-plugin": "nfd.k8s-sigs.io",
    "kuberay-operator": "ray.io",
}
"""API group of the CRDs that the stack applies for each chart."""

CHART_VERSION = f"{LABEL_PREFIX}/chart-version"
"""Annotation of a CRD that reveals a downgrade; API versions do not, because fields change within a version."""

_KIND = "CustomResourceDefinition"
_CRD_MEMBER = re.compile(r"(^|/)crds/[^/]+\.ya?ml$")
"""Path of CRDs in a packaged chart or its subcharts."""


class CrdSource(Protocol):
    """A source of CRDs."""

    def crds(self, group: str) -> tuple[Manifest, ...]:
        """All CRDs of an API group, sorted by name.

        Raises:
            SettingsError: there is no such CRD.
        """
        ...


class PinnedCharts:
    """CRDs in the archives of the pinned charts.

    Args:
        release: the pinned chart versions.
        folder: folder of the archives; None for `platform_charts.charts.archives.ARCHIVES`.
    """

    def __init__(self, release: ReleaseManifest, *, folder: Path | None = None) -> None:
        self._release = release
        self._folder = folder

    def crds(self, group: str) -> tuple[Manifest, ...]:
        """The CRDs of the group in its chart's archive.

        Raises:
            SettingsError: no chart has CRDs of the group, or the archive is missing or lacks them.
        """
        name = _chart_of(group)
        chart = self._release.charts[name]
        path = archive_path(name, chart, folder=self._folder)
        if not path.is_file():
            raise SettingsError(f"{path}: no such archive", remedy="run `make charts`")
        found = _of_group(_crds_in_archive(path), group, where=str(path))
        return tuple(annotated(one, CHART_VERSION, str(chart.version)) for one in found)


class FetchedCharts:
    """CRDs in the archives of the pinned charts, which are downloaded if missing.

    Args:
        release: the pinned chart versions.
        source: source of archives.
        kind: kind of environment; prod does not allow unresolved hashes.
        mirror: repository to use instead of the charts' own.
        folder: folder of the archives; None for `platform_charts.charts.archives.ARCHIVES`.
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
        self._fetch = partial(fetch_archive, source=source, kind=kind, mirror=mirror, folder=folder)
        self._pinned = PinnedCharts(release, folder=folder)

    def crds(self, group: str) -> tuple[Manifest, ...]:
        """The CRDs of the group in its chart's archive.

        Raises:
            PlatformError: see `PinnedCharts.crds` and `platform_charts.charts.archives.fetch_archive`.
        """
        name = _chart_of(group)
        self._fetch(name, self._release.charts[name])
        return self._pinned.crds(group)


class CrdFolder:
    """CRDs in the YAML files of a folder.

    Args:
        folder: the folder; files may be at any depth.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def crds(self, group: str | None = None) -> tuple[Manifest, ...]:
        """The CRDs in the folder's files, of one group or of all.

        Raises:
            SettingsError: there is no such CRD.
        """
        texts = (path.read_text(encoding="utf-8") for path in sorted(self._folder.rglob("*.yaml")))
        return _of_group((one for text in texts for one in read_manifests(text)), group, where=str(self._folder))


def check_crd_upgrade(old: Manifest, new: Manifest) -> None:
    """Refuse an upgrade that would break stored objects or clients.

    KubeRay has deleted workers when its CRDs were older than the operator. Removing a version in which objects are
    stored makes them unreadable (Kubernetes, "Versions in CustomResourceDefinitions").

    Args:
        old: the CRD in the cluster, with its status; or an earlier release's, without.
        new: the CRD to replace it.

    Raises:
        RefusedError: lists every breaking change.
        ValueError: the CRDs have different names.
    """
    name = old["metadata"]["name"]
    if name != new["metadata"]["name"]:
        raise ValueError(f"{name} is not upgraded to {new['metadata']['name']}")
    changes = list(_breaking_changes(old, new))
    if changes:
        raise RefusedError(
            f"CRD {name} cannot be upgraded:{''.join(f'{chr(10)}  {change}' for change in changes)}",
            remedy="upgrade to a release with both versions first, and migrate the stored objects to the new version",
        )


def check_crd_upgrades(live: Iterable[Manifest], pinned: Iterable[Manifest]) -> None:
    """`check_crd_upgrade` for every pinned CRD that exists in the cluster.

    Raises:
        RefusedError: the first CRD that cannot be upgraded.
    """
    before = {one["metadata"]["name"]: one for one in live}
    for one in pinned:
        if one["metadata"]["name"] in before:
            check_crd_upgrade(before[one["metadata"]["name"]], one)


def not_older(crds: Iterable[Manifest], live: Iterable[Manifest]) -> tuple[Manifest, ...]:
    """Those CRDs that do not come from an older chart than the cluster's of the same name.

    An update that takes a step of an upgrade back leaves the newer ones: objects may have fields that the older ones drop.
    """
    before = {one["metadata"]["name"]: _chart_version(one) for one in live}
    kept = []
    for one in crds:
        was, is_ = before.get(one["metadata"]["name"]), _chart_version(one)
        if was is None or is_ is None or is_ >= was:
            kept.append(one)
    return tuple(kept)


def is_newer(crd: Manifest, live: Manifest) -> bool:
    """Whether a CRD comes from a newer chart than the cluster's, or from one where that has no record of its chart."""
    was, is_ = _chart_version(live), _chart_version(crd)
    return is_ is not None and (was is None or is_ > was)


def of_deployed_charts(crds: Iterable[Manifest], live: Sequence[Manifest]) -> tuple[Manifest, ...]:
    """Those CRDs of whose group the cluster has some of the same chart's version, or none at all.

    The others are not deployed yet, or newer ones are.
    """
    versions = {one["spec"]["group"]: set[Version | None]() for one in live}
    for one in live:
        versions[one["spec"]["group"]].add(_chart_version(one))
    return tuple(
        one for one in crds if _chart_version(one) in versions.get(one["spec"]["group"], {_chart_version(one)})
    )


def _breaking_changes(old: Manifest, new: Manifest) -> Iterator[str]:
    before, after = _chart_version(old), _chart_version(new)
    if before is not None and after is not None and after < before:
        yield f"chart version {before} would become {after}; writes would lose the newer version's fields"
    for field, was, is_ in (
        ("scope", old["spec"]["scope"], new["spec"]["scope"]),
        ("names.kind", old["spec"]["names"]["kind"], new["spec"]["names"]["kind"]),
    ):
        if was != is_:
            yield f"{field}: {was} would become {is_}, which is immutable"
    versions = {version["name"] for version in new["spec"]["versions"]}
    served = {version["name"] for version in new["spec"]["versions"] if version["served"]}
    for version in old["spec"]["versions"]:
        if version["served"] and version["name"] not in served:
            yield f"version {version['name']} would no longer be served"
    for version in _stored(old):
        if version not in versions:
            yield f"version {version} has stored objects, and the new CRD lacks it"


def _stored(crd: Manifest) -> tuple[str, ...]:
    """Versions in which objects are stored; without a status the storage version."""
    stored = crd.get("status", {}).get("storedVersions")
    if stored:
        return tuple(stored)
    return tuple(version["name"] for version in crd["spec"]["versions"] if version["storage"])


def _chart_of(group: str) -> str:
    charts = [chart for chart, chart_group in CRD_GROUPS.items() if chart_group == group]
    if not charts:
        known = ", ".join(CRD_GROUPS.values())
        raise SettingsError(f"no chart has CRDs of group {group}; known groups: {known}")
    return charts[0]


def _chart_version(crd: Manifest) -> Version | None:
    """Version of the chart that the CRD came with; None if something else applied it."""
    text = crd["metadata"].get("annotations", {}).get(CHART_VERSION)
    return None if text is None else Version(text)


def _of_group(documents: Iterable[Manifest], group: str | None, *, where: str) -> tuple[Manifest, ...]:
    found = [one for one in documents if one.get("kind") == _KIND and group in {None, one["spec"]["group"]}]
    if not found:
        raise SettingsError(f"{where}: no CRD{f' of group {group}' if group else ''}")
    return tuple(with_job_columns(one) for one in sorted(found, key=lambda one: cast("str", one["metadata"]["name"])))


def _crds_in_archive(path: Path) -> list[Manifest]:
    """The CRDs of a packaged chart, from a JSON file beside it if that is of the same bytes: YAML takes seconds."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    cache = path.with_suffix(".crds.json")
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(cache.read_text(encoding="utf-8"))
        if known["sha256"] == digest:
            return list(known["crds"])
    found = [one for one in _documents_in_archive(path) if one.get("kind") == _KIND]
    written = json.loads(json.dumps(found, default=str))  # what the next process reads
    with suppress(OSError), tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        json.dump({"sha256": digest, "crds": written}, file)
        file.flush()
        Path(file.name).replace(cache)
    return list(written)


def _documents_in_archive(path: Path) -> Iterator[Manifest]:
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile() and _CRD_MEMBER.search(member.name):
                content = archive.extractfile(member)
                assert content is not None, f"{member.name} is a file"
                yield from read_manifests(content.read())
