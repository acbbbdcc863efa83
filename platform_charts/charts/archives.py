"""Chart archives: downloaded once, verified against the release manifest, and installed from the local file.

Helm installs the verified file, never from a repository, so an unavailable or changed repository cannot affect an
installation.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from infra.spec.errors import NotFoundError, PlatformError, RefusedError, SettingsError
from infra.spec.protection import EnvironmentKind
from infra.spec.release import Chart, ReleaseManifest

ARCHIVES = Path(__file__).parents[2] / ".local" / "cache" / "charts"
"""Folder of the archives, <name>-<version>.tgz."""

_LOG = logging.getLogger(__name__)


class Download(NamedTuple):
    """A downloaded file and its URL."""

    content: bytes
    source: str


class ArchiveSource(Protocol):
    """A source of chart archives."""

    def archive(self, repository: str, name: str, version: str) -> Download:
        """The archive of a chart in an https:// or oci:// repository.

        Raises:
            NotFoundError: the repository lacks the archive or is unreachable.
        """
        ...


def archive_path(name: str, chart: Chart, *, folder: Path | None = None) -> Path:
    """Path of a chart's archive in `folder`, by default `ARCHIVES`.

    Raises:
        SettingsError: the release has not resolved the chart's version.
    """
    if chart.version is None:
        raise SettingsError(f"charts.{name}.version is unresolved", remedy="run `make release-lock`")
    return (folder or ARCHIVES) / f"{name}-{chart.version}.tgz"


def fetch_archive(
    name: str,
    chart: Chart,
    *,
    source: ArchiveSource,
    kind: EnvironmentKind,
    mirror: str | None = None,
    folder: Path | None = None,
) -> Path:
    """Download a chart's archive into the folder and verify its hash; a verified archive is not downloaded again.

    Args:
        name: name of the chart in the release manifest and in its repository.
        chart: the pinned version and hash.
        source: source of archives.
        kind: kind of environment; outside prod an unresolved hash gives a warning only.
        mirror: repository to use instead of the chart's own.
        folder: folder of the archives; None for `ARCHIVES`.

    Raises:
        RefusedError: the hash differs from the pinned one, or is unresolved in prod.
        SettingsError: the release has not resolved the chart's version.
        PlatformError: the repository lacks the archive or is unreachable.
    """
    path = archive_path(name, chart, folder=folder)
    if chart.sha256 is None:
        if kind is EnvironmentKind.PROD:
            raise RefusedError(
                f"charts.{name}.sha256 is unresolved, which prod does not allow", remedy="run `make release-lock`"
            )
        _LOG.warning("charts.%s.sha256 is unresolved: %s will be installed unverified", name, path.name)
    if path.is_file() and chart.sha256 in {None, _sha256(path.read_bytes())}:
        return path
    try:
        content, where = source.archive(mirror or chart.repository, name, str(chart.version))
    except NotFoundError as error:
        raise PlatformError(f"chart {name} {chart.version}: {error}", remedy=_remedy(mirror)) from error
    found = _sha256(content)
    if chart.sha256 not in {None, found}:
        raise RefusedError(
            f"{where}: chart {name} {chart.version} has sha256 {found}, the release pins {chart.sha256}",
            remedy="find out why the archive changed; new contents need a new chart version",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_bytes(content)
    unfinished.replace(path)
    return path


def fetch_archives(
    release: ReleaseManifest,
    names: Iterable[str],
    *,
    source: ArchiveSource,
    kind: EnvironmentKind,
    mirror: str | None = None,
    folder: Path | None = None,
) -> Mapping[str, Path]:
    """`fetch_archive` for several charts of the release; returns paths by chart name."""
    return {
        name: fetch_archive(name, release.charts[name], source=source, kind=kind, mirror=mirror, folder=folder)
        for name in names
    }


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _remedy(mirror: str | None) -> str:
    where = "the mirror in mirrors.charts" if mirror else "a mirror, set mirrors.charts to it,"
    return f"add the archive to {where} or make the repository reachable"
