"""What changes between two releases, and which changes cannot be made at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from packaging.version import Version

from infra.spec.errors import RefusedError
from infra.spec.release import ReleaseManifest

Part = Literal["platform", "Kubernetes", "node image", "training", "add-on", "chart", "CRDs", "image"]


@dataclass(frozen=True, kw_only=True)
class Change:
    """A version that differs between two releases.

    Attributes:
        part: what kind of component it is.
        name: its name; empty where there is one of its part.
        old: the version that the stack runs; None if the component is new.
        new: the version of the release; None if the release has it no more.
    """

    part: Part
    name: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        name = f"{self.part} {self.name}".strip()
        if self.old is None:
            return f"{name}: new, {self.new}"
        if self.new is None:
            return f"{name}: removed, was {self.old}"
        return f"{name}: {self.old} to {self.new}"


def changes_between(old: ReleaseManifest, new: ReleaseManifest) -> tuple[Change, ...]:
    """Every version that differs, in the order of the manifest."""
    return tuple(_changes(old, new))


def check_direction(old: str, new: str, *, kubernetes: str, target: str) -> None:
    """Refuse a downgrade, and a step over a minor version.

    Args:
        old: version of the release that deployed the stack, e.g. 0.1.0.
        new: version of the release of this checkout.
        kubernetes: Kubernetes minor of the running control plane, e.g. 1.34.
        target: the minor that the update would give it.

    Raises:
        RefusedError: names both versions, the rule and what to do instead.
    """
    _check_order("the platform", old, new, back="check out the stack's version: a stack is not downgraded")
    _check_order(
        "Kubernetes",
        kubernetes,
        target,
        back="EKS has no way back to an older minor by an update; set cluster.kubernetes",
    )
    _check_minors(
        "the platform",
        old,
        new,
        step="check out the last release of the minor in between, and upgrade to it first",
    )
    _check_minors(
        "Kubernetes",
        kubernetes,
        target,
        step="EKS moves one minor at a time: set cluster.kubernetes to the next minor, then upgrade again",
    )


def _check_order(what: str, before: str, after: str, *, back: str) -> None:
    if Version(after) < Version(before):
        raise RefusedError(f"{what} would go back from {before} to {after}", remedy=back)


def _check_minors(what: str, before: str, after: str, *, step: str) -> None:
    first, last = Version(before), Version(after)
    if (first.major == last.major and last.minor - first.minor > 1) or last.major - first.major > 1:
        raise RefusedError(f"{what} would skip a minor version, from {before} to {after}", remedy=step)


_Read = Callable[[ReleaseManifest], Mapping[str, str | None]]


def _by_name(part: str) -> _Read:
    return lambda release: {name: entry.version for name, entry in getattr(release, part).items()}


_READERS: Mapping[Part, _Read] = {
    "platform": lambda release: {"": release.platform},
    "Kubernetes": lambda release: {"": release.kubernetes.version},
    "node image": lambda release: {
        **{str(ami): version for ami, version in release.node_image.releases.items()},
        "NVIDIA driver": release.node_image.nvidia_driver,
    },
    "training": lambda release: {
        name: str(getattr(release.stack, name)) for name in ("python", "ray", "torch", "cuda", "mlflow")
    },
    "add-on": _by_name("addons"),
    "chart": _by_name("charts"),
    "CRDs": lambda release: dict(release.crds),
    "image": lambda release: {name: image.digest or image.tag for name, image in release.images.items()},
}


def _changes(old: ReleaseManifest, new: ReleaseManifest) -> Iterator[Change]:
    for part, read in _READERS.items():
        before, after = read(old), read(new)
        for name in [*before, *(name for name in after if name not in before)]:
            if before.get(name) != after.get(name):
                yield Change(part=part, name=name, old=before.get(name), new=after.get(name))
