"""Ask every entry's source whether the entry exists there, and whether there is a newer version.

`infra.lifecycle.release.newer_versions` decides which of the newer versions the release's rules allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from infra.lifecycle.release.lock import Resolution, Resolved, Sources
from infra.lifecycle.release.numbering import newer_like, newer_releases
from infra.spec.errors import NoAnswerError, NotFoundError
from infra.spec.release import AmiType, Chart, Download, Image, ReleaseManifest
from infra.spec.yaml_text import KeyPath

_PARALLEL = 8
"""Entries that are looked up at the same time."""

_PACKAGES = {"ray": "ray", "torch": "torch", "mlflow": "mlflow"}
"""Python package of each entry of `stack` that is one."""


class Status(StrEnum):
    """What a source says about an entry."""

    CONFIRMED = "confirmed"
    UNRESOLVED = "unresolved"
    RESOLVED = "resolved now"
    NOT_FOUND = "not found"
    CHANGED = "changed"
    NO_ANSWER = "no answer"
    NO_SOURCE = "no source"


class Newer(NamedTuple):
    """A newer version.

    Attributes:
        version: the version.
        changes: the values that an upgrade writes; empty if only a person can upgrade.
        held_back: reasons against it that are not rules of the release.
    """

    version: str
    changes: tuple[Resolved, ...]
    held_back: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """One entry of the manifest.

    Attributes:
        entry: key path of the entry.
        current: its version; empty if unresolved.
        status: what its source says.
        detail: the source, or the reason.
        newer: a newer version, if the source has one.
        note: why a newer version could not be looked up; empty if it could.
    """

    entry: KeyPath
    current: str
    status: Status
    detail: str
    newer: Newer | None = None
    note: str = ""

    @property
    def name(self) -> str:
        """Dotted name of the entry."""
        return ".".join(self.entry)


Question = Callable[[], Report]


def survey(release: ReleaseManifest, sources: Sources, *, done: Callable[[Report], None]) -> tuple[Report, ...]:
    """Look up every entry of the manifest, in the order of the file.

    Args:
        release: the manifest.
        sources: the source of each kind of entry.
        done: is called with each report as soon as all before it are known.
    """
    reports: list[Report] = []
    with ThreadPoolExecutor(_PARALLEL) as pool:
        for report in pool.map(lambda question: question(), _Survey(release, sources).questions()):
            done(report)
            reports.append(report)
    return tuple(reports)


def with_resolution(reports: Iterable[Report], resolution: Resolution) -> tuple[Report, ...]:
    """The reports with the result of the same run's resolution, for the entries that had unresolved values."""
    found = {one.entry: one for one in resolution.resolved} | {one.path: one for one in resolution.resolved}
    still = {one.path[:2]: one.reason for one in resolution.open} | {one.path: one.reason for one in resolution.open}

    def with_result(report: Report) -> Report:
        if report.entry in still and report.status in {Status.CONFIRMED, Status.UNRESOLVED}:
            return replace(report, status=Status.UNRESOLVED, detail=still[report.entry])
        if report.entry in found and report.status in {Status.CONFIRMED, Status.UNRESOLVED}:
            one = found[report.entry]
            is_version = report.status is Status.UNRESOLVED
            current = one.value if is_version else report.current
            return replace(report, status=Status.RESOLVED, current=current, detail=one.source)
        return report

    return tuple(map(with_result, reports))


def entries(release: ReleaseManifest, sources: Sources) -> int:
    """How many reports `survey` makes."""
    return sum(1 for _ in _Survey(release, sources).questions())


class _Survey:
    """The questions about one manifest."""

    def __init__(self, release: ReleaseManifest, sources: Sources) -> None:
        self._release = release
        self._sources = sources
        self._minor = release.kubernetes.version

    def questions(self) -> Iterator[Question]:
        """One question per entry, in the order of the file."""
        release = self._release
        yield lambda: _sourceless(("platform",), release.platform, "the project's own version")
        yield self._kubernetes
        for ami in release.node_image.releases:
            yield lambda ami=ami: self._node_image(ami)  # type: ignore[misc]  # bound now, not when called
        driver = release.node_image.nvidia_driver
        yield lambda: _sourceless(("node_image", "nvidia_driver"), driver, "read the release notes of amazon-eks-ami")
        for field in type(release.stack).model_fields:
            if field not in {"as_of", "source"}:
                yield lambda field=field: self._stack(field)  # type: ignore[misc]
        for name in release.addons:
            yield lambda name=name: self._addon(name)  # type: ignore[misc]
        for name, chart in release.charts.items():
            yield lambda name=name, chart=chart: self._chart(name, chart)  # type: ignore[misc]
        for name, image in release.images.items():
            yield lambda name=name, image=image: self._image(name, image)  # type: ignore[misc]
        for name, download in release.downloads.items():
            yield lambda name=name, download=download: self._download(name, download)  # type: ignore[misc]
        for name, version in release.crds.items():
            yield lambda name=name, version=version: _sourceless(  # type: ignore[misc]
                ("crds", name), version, "the CRDs are those of the operator's chart"
            )
        yield lambda: _sourceless(("compatibility",), "", "read the projects' compatibility pages")

    def _kubernetes(self) -> Report:
        path = ("kubernetes", "version")

        def exists() -> str:
            if self._minor not in self._sources.clusters.minors():
                raise NotFoundError(f"EKS does not list {self._minor} in standard support")
            return "EKS DescribeClusterVersions"

        def newer() -> Newer | None:
            found = newer_like(self._minor, self._sources.clusters.minors())
            return Newer(found, (Resolved(path, found, "EKS DescribeClusterVersions"),)) if found else None

        return _report(path[:1], self._minor, exists, newer)

    def _node_image(self, ami: AmiType) -> Report:
        path = ("node_image", "releases", ami)
        current, source = self._release.node_image.releases[ami], self._sources.node_images
        if current is None:
            return _unresolved(path)

        def newer() -> Newer | None:
            answer = source.release(self._minor, ami)
            found = newer_like(current, [answer.value])
            return Newer(found, (Resolved(path, found, answer.source),)) if found else None

        return _report(path, current, lambda: source.published(self._minor, ami, current), newer)

    def _stack(self, field: str) -> Report:
        path = ("stack", field)
        current = str(getattr(self._release.stack, field))
        if field not in _PACKAGES:
            return _sourceless(path, current, "follows requirements.lock and pyproject.toml")

        def exists() -> str:
            if current not in self._sources.packages.versions(_PACKAGES[field]):
                raise NotFoundError(f"the package index has no {_PACKAGES[field]} {current}")
            return "pip's package index"

        def newer() -> Newer | None:
            found = next(iter(newer_releases(current, self._sources.packages.versions(_PACKAGES[field]))), None)
            return Newer(found, (Resolved(path, found, "requirements.lock"),)) if found else None

        return _report(path, current, exists, newer)

    def _addon(self, name: str) -> Report:
        path = ("addons", name, "version")
        current, source = self._release.addons[name].version, self._sources.addons
        if current is None:
            return _unresolved(path[:2])

        def exists() -> str:
            if current not in source.versions(name, self._minor):
                raise NotFoundError(f"EKS has no version {current} of add-on {name} for Kubernetes {self._minor}")
            return "EKS DescribeAddonVersions"

        def newer() -> Newer | None:
            found = newer_like(current, source.versions(name, self._minor))
            return Newer(found, (Resolved(path, found, "EKS DescribeAddonVersions"),)) if found else None

        return _report(path[:2], current, exists, newer)

    def _chart(self, name: str, chart: Chart) -> Report:
        entry, version = ("charts", name), chart.version
        if version is None:
            return _unresolved(entry)

        def exists() -> str:
            found = self._sources.charts.chart(chart.repository, name, version)
            return _unchanged(chart.sha256, found.sha256, found.source)

        return _report(entry, version, exists, lambda: self._newer_chart(name, chart, version))

    def _newer_chart(self, name: str, chart: Chart, version: str) -> Newer | None:
        """The chart's newest release, with the images that have its appVersion."""
        source, entry = self._sources.charts, ("charts", name)
        above = newer_releases(version, source.versions(chart.repository, name))
        if not above:
            return None
        newest = above[0]
        if chart.is_kubernetes_version:  # the newest is often for a later minor
            newest = next((one for one in above if self._is_of_minor(chart, name, one)), newest)
        found, details = source.chart(chart.repository, name, newest), source.details(chart.repository, name, newest)
        app = (details.app_version or newest).removeprefix("v")
        values = {"version": newest, "sha256": found.sha256}
        if chart.app_version is not None or app != newest.removeprefix("v"):
            values["app_version"] = app
        changes = [Resolved((*entry, field), value, found.source) for field, value in values.items()]
        held: list[str] = []
        for image_name, image in self._release.images.items():
            if image.chart == name:
                tag = f"v{app}" if image.tag.startswith("v") else app
                try:
                    changes += self._new_tag(image_name, image, tag)
                except NotFoundError as error:
                    held.append(f"its image {image_name}: {error}")
        named = [image_name for image_name, image in self._release.images.items() if image.values_of == name]
        if named:
            held.append(f"take the tags of images {', '.join(named)} from the new chart's values")
        return Newer(newest, tuple(changes), tuple(held))

    def _is_of_minor(self, chart: Chart, name: str, version: str) -> bool:
        app = self._sources.charts.details(chart.repository, name, version).app_version
        return app.removeprefix("v").startswith(f"{self._minor}.")

    def _image(self, name: str, image: Image) -> Report:
        entry, source = ("images", name), self._sources.images
        if image.is_ours:
            return _sourceless(entry, image.tag, "ours: `make image PUSH=1` pushes it")

        def exists() -> str:
            found = source.digest(image.repository, image.tag)
            return _unchanged(image.digest, found.value, found.source)

        def newer() -> Newer | None:
            tag = newer_like(image.tag, source.tags(image.repository))
            if tag is None:
                return None
            chart = image.chart or image.values_of
            if chart is not None:
                return Newer(tag, (), (f"chart {chart} names the image: upgrade the chart",))
            return Newer(tag, self._new_tag(name, image, tag))

        return _report(entry, image.tag, exists, newer)

    def _new_tag(self, name: str, image: Image, tag: str) -> tuple[Resolved, ...]:
        found = self._sources.images.digest(image.repository, tag)
        values = {"tag": tag, "digest": found.value}
        return tuple(Resolved(("images", name, field), value, found.source) for field, value in values.items())

    def _download(self, name: str, download: Download) -> Report:
        source = self._sources.files

        def exists() -> str:
            source.file(download.address())
            return download.address()

        def newer() -> Newer | None:
            if download.latest is None or source.file(download.latest) == source.file(download.address()):
                return None
            return Newer("newest", (), (f"{download.latest} is another file: read its version, check its signature",))

        return _report(("downloads", name), download.version, exists, newer)


def _report(entry: KeyPath, current: str, exists: Callable[[], str], newer: Callable[[], Newer | None]) -> Report:
    """Ask both questions; no answer to one of them leaves the other.

    Args:
        entry: key path of the entry.
        current: its version.
        exists: the source of the current version.
        newer: the newer version, if any.
    """
    try:
        status, detail = Status.CONFIRMED, exists()
    except _ChangedError as error:
        status, detail = Status.CHANGED, str(error)
    except NoAnswerError as error:
        status, detail = Status.NO_ANSWER, str(error)
    except NotFoundError as error:
        status, detail = Status.NOT_FOUND, str(error)
    try:
        found, note = newer(), ""
    except NotFoundError as error:
        found, note = None, str(error)
    return Report(entry=entry, current=current, status=status, detail=detail, newer=found, note=note)


def _sourceless(entry: KeyPath, current: str, reason: str) -> Report:
    return Report(entry=entry, current=current, status=Status.NO_SOURCE, detail=reason)


def _unresolved(entry: KeyPath) -> Report:
    return Report(entry=entry, current="", status=Status.UNRESOLVED, detail="")


class _ChangedError(NotFoundError):
    """The source has other content under the pinned version."""


def _unchanged(pinned: str | None, found: str, source: str) -> str:
    """The source, if its content is the pinned one or nothing is pinned."""
    if pinned is not None and pinned != found:
        raise _ChangedError(f"{source} has {found}, pinned is {pinned}")
    return source
