"""Chart archives: fetched once, verified against the release manifest, and installed from where they lie.

Helm is handed the file, never a repository: what was verified is what is installed, and a repository that is away or has
been changed cannot change an installation.
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
"""Where archives are kept, as <name>-<version>.tgz."""

_LOG = logging.getLogger(__name__)


class Download(NamedTuple):
    """A file as a repository sent it."""

    content: bytes
    source: str


class ArchiveSource(Protocol):
    """Hands chart archives out."""

    def archive(self, repository: str, name: str, version: str) -> Download:
        """The archive of a chart in an https:// or oci:// repository.

        Raises:
            NotFoundError: the repository does not have it, or cannot be reached.
        """
        ...


def archive_path(name: str, chart: Chart, *, folder: Path | None = None) -> Path:
    """Where a chart's archive lies once it has been fetched; `folder` is `ARCHIVES` where none is given.

    Raises:
        SettingsError: the release has no version of the chart.
    """
    if chart.version is None:
        raise SettingsError(f"charts.{name}.version is unresolved", remedy="run `make release-lock`")
    return (folder or ARCHIVES) / f"{name}-{chart.version}.tgz"


def fetch(
    name: str,
    chart: Chart,
    *,
    source: ArchiveSource,
    kind: EnvironmentKind,
    mirror: str | None = None,
    folder: Path | None = None,
) -> Path:
    """Have a chart's archive in the folder, the pinned one and whole; what is there already is not asked for again.

    Args:
        name: name of the chart in the release manifest and in its repository.
        chart: what the release pins.
        source: where archives are to be had.
        kind: what the environment is for; outside prod an archive with an unresolved hash is taken, with a warning.
        mirror: repository to ask instead of the chart's own.
        folder: where archives are kept; None is `ARCHIVES`.

    Raises:
        RefusedError: the archive is not the pinned one, or prod was to take one whose hash is unresolved.
        SettingsError: the release has no version of the chart.
        PlatformError: the repository does not have the archive.
    """
    path = archive_path(name, chart, folder=folder)
    if chart.sha256 is None:
        if kind is EnvironmentKind.PROD:
            raise RefusedError(
                f"charts.{name}.sha256 is unresolved, which prod refuses", remedy="run `make release-lock`"
            )
        _LOG.warning("charts.%s.sha256 is unresolved: %s is installed unverified", name, path.name)
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
            remedy="find out who changed the archive; a release with new contents has a new version",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_bytes(content)
    unfinished.replace(path)
    return path


def fetch_all(
    release: ReleaseManifest,
    names: Iterable[str],
    *,
    source: ArchiveSource,
    kind: EnvironmentKind,
    mirror: str | None = None,
    folder: Path | None = None,
) -> Mapping[str, Path]:
    """`fetch` for several charts of the release: their archives by name."""
    return {
        name: fetch(name, release.charts[name], source=source, kind=kind, mirror=mirror, folder=folder)
        for name in names
    }


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _remedy(mirror: str | None) -> str:
    where = "the mirror that mirrors.charts names" if mirror else "a mirror, and name it in mirrors.charts,"
    return f"put the archive into {where} or see to it that this machine reaches the repository"
