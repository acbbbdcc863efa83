"""Look up the release manifest's unresolved values, and write them there with date and source."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import NamedTuple, ParamSpec

from packaging.version import Version

from infra.lifecycle.release.aws_versions import AddonSource, ClusterSource, NodeImageSource
from infra.lifecycle.release.registries import Answer, ChartSource, ImageSource
from infra.lifecycle.release.web_sources import FileSource, PackageSource
from infra.spec.errors import NotFoundError
from infra.spec.release import AddOn, Entry, ReleaseManifest, load_release
from infra.spec.section import validate
from infra.spec.yaml_text import KeyPath, Scalar, edited, parse

P = ParamSpec("P")


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The source of each kind of entry."""

    charts: ChartSource
    images: ImageSource
    node_images: NodeImageSource
    addons: AddonSource
    clusters: ClusterSource
    packages: PackageSource
    files: FileSource


class Resolved(NamedTuple):
    """A value that was found.

    Attributes:
        path: key path of the value in the manifest.
        value: the value.
        source: where it was found.
    """

    path: KeyPath
    value: str
    source: str

    @property
    def entry(self) -> KeyPath:
        """Key path of the manifest entry that has the value's date and source."""
        return self.path[:1] if self.path[0] in {"kubernetes", "node_image", "stack"} else self.path[:2]


class Open(NamedTuple):
    """A value that was not found, and why."""

    path: KeyPath
    reason: str


@dataclass(frozen=True)
class Resolution:
    """The result of one look-up."""

    resolved: tuple[Resolved, ...]
    open: tuple[Open, ...]


def resolve(release: ReleaseManifest, sources: Sources) -> Resolution:
    """Look up every unresolved value; resolved values stay."""
    lookup = _LookUp(release, sources)
    lookup.node_images()
    lookup.addons()
    lookup.charts()
    lookup.images()
    lookup.downloads()
    return Resolution(tuple(lookup.resolved), tuple(lookup.open))


class _LookUp:
    """One look-up of every unresolved value."""

    def __init__(self, release: ReleaseManifest, sources: Sources) -> None:
        self._release = release
        self._sources = sources
        self.resolved: list[Resolved] = []
        self.open: list[Open] = []

    def _ask(
        self,
        paths: tuple[KeyPath | None, ...],
        question: Callable[P, tuple[str, ...]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Look up the values at `paths`: the answer has them in order, then its source. A path of None is known."""
        try:
            *values, source = question(*args, **kwargs)
        except NotFoundError as error:
            self.open += [Open(path, str(error)) for path in paths if path]
        else:
            self.resolved += [Resolved(path, value, source) for path, value in zip(paths, values, strict=True) if path]

    def node_images(self) -> None:
        """AMI releases for the control plane's minor."""
        for ami, version in self._release.node_image.releases.items():
            if version is None:
                path = ("node_image", "releases", ami)
                self._ask((path,), self._sources.node_images.release, self._release.kubernetes.version, ami)

    def addons(self) -> None:
        """Versions of EKS add-ons for the control plane's minor."""
        for name, addon in self._release.addons.items():
            if addon.version is None:
                path = ("addons", name, "version")
                self._ask((path,), self._addon, name, addon)

    def _addon(self, name: str, addon: AddOn) -> Answer:
        """EKS's default version, or the newest if the default is below the minimum."""
        source, minor = self._sources.addons, self._release.kubernetes.version
        answer = source.version(name, minor)
        if addon.minimum is None or _number(answer.value) >= Version(addon.minimum):
            return answer
        newest = max(source.versions(name, minor), key=_number)
        if _number(newest) < Version(addon.minimum):
            raise NotFoundError(f"EKS's newest version of add-on {name} is {newest}, must be {addon.minimum} or newer")
        return answer._replace(value=newest)

    def charts(self) -> None:
        """Hashes of charts; charts without a version get the newest."""
        for name, chart in self._release.charts.items():
            if chart.sha256 is None:
                version = ("charts", name, "version") if chart.version is None else None
                self._ask(
                    (version, ("charts", name, "sha256")),
                    self._sources.charts.chart,
                    chart.repository,
                    name,
                    chart.version,
                )

    def images(self) -> None:
        """Digests of third-party images; our own have a digest once they are pushed."""
        for name, image in self._release.images.items():
            path = ("images", name, "digest")
            if image.digest is None and image.is_ours:
                self.open.append(Open(path, "ours: `make image PUSH=1` writes the digest"))
            elif image.digest is None:
                self._ask((path,), self._sources.images.digest, image.repository, image.tag)

    def downloads(self) -> None:
        """Hashes of downloads: always open, because a person must check the publisher's signature."""
        for name, download in self._release.downloads.items():
            if download.sha256 is None:
                reason = f"by hand: download {download.address()}, check its signature, write its sha256 here"
                self.open.append(Open(("downloads", name, "sha256"), reason))


def _number(addon_version: str) -> Version:
    """The upstream version and EKS's build of an add-on: 1.7.0 and 2 for v1.7.0-eksbuild.2."""
    return Version(addon_version.removeprefix("v").replace("-eksbuild.", "+"))


def write(resolution: Resolution, file: Path, *, today: date, confirmed: Iterable[KeyPath] = ()) -> None:
    """Write the values into the manifest, with source and date, and validate it.

    Args:
        resolution: the values.
        file: the manifest.
        today: the date.
        confirmed: entries that were found at their source as they are; they get the date.

    Raises:
        SettingsError: a value is invalid in the manifest; the file stays unchanged.
    """
    release, text = load_release(file), file.read_text(encoding="utf-8")
    changes: dict[KeyPath, Scalar] = {(*entry, "as_of"): today for entry in confirmed if _is_dated(release, entry)}
    for one in resolution.resolved:
        entry = _entry(release, one.entry)
        is_upgrade = one.path[-1] in {"version", "tag"} and getattr(entry, one.path[-1]) is not None
        # The source of an older version says nothing about the new one.
        known = changes.get((*one.entry, "source"), None if is_upgrade else entry.source)
        changes[one.path] = one.value
        changes[*one.entry, "as_of"] = today
        changes[*one.entry, "source"] = _joined(str(known) if known else "", one.source)
    changed, title = edited(text, changes), f"{file.name} with looked-up values"
    validate(ReleaseManifest, parse(changed, source=title).value, file=title)
    file.write_text(changed, encoding="utf-8")
    load_release.cache_clear()


def _is_dated(release: ReleaseManifest, path: KeyPath) -> bool:
    """Whether one date holds for the whole entry: that of the AMIs, or of the stack, holds for several versions."""
    group = getattr(release, path[0])
    return path == ("kubernetes",) or (len(path) == 2 and isinstance(group, dict) and isinstance(group[path[1]], Entry))


def _entry(release: ReleaseManifest, path: KeyPath) -> Entry:
    group = getattr(release, path[0])
    entry = group if len(path) == 1 else group[path[1]]
    assert isinstance(entry, Entry), f"{'.'.join(path)} has no date and source"
    return entry


def _joined(known: str, new: str) -> str:
    """Both sources: an entry's version and digest may come from different places."""
    return "; ".join(dict.fromkeys([*filter(None, known.split("; ")), new]))
