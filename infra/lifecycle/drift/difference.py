"""A difference between what the stack made and what there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from infra.spec.manifest import Manifest

Kind = Literal["changed", "deleted", "being deleted", "immutable", "unknown"]
"""Somebody changed or deleted it, is deleting it, made it anew with fields that the API server lets nobody change, or it could not be
compared."""

Where = Literal["account", "cluster"]

_REMEDIES: Mapping[Kind, str] = {
    "immutable": "; delete that object, then repeat",
    "being deleted": "; once it is gone, e.g. because its finalizers are removed, FIX=1 makes it again",
}

_SECRET = "4dabf18193072939515e22adb298388d"  # noqa: S105 - the key by which Pulumi marks a secret
"""Key of an encrypted value in a stack's state (pulumi, sdk/go/common/resource/sig)."""

_UNCOMPARED = frozenset({"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"})
"""Metadata that the API server writes itself."""


@dataclass(frozen=True, order=True, kw_only=True)
class Difference:
    """One resource that differs.

    Attributes:
        where: `account` or `cluster`.
        resource: what it is, e.g. NetworkPolicy research/default-deny.
        kind: how it differs.
        paths: the fields that differ, dotted; for `unknown`, why it could not be compared; for `being deleted`, the finalizers.
        wanted: the object of the cluster as it should be.
    """

    where: Where
    resource: str
    kind: Kind
    paths: tuple[str, ...] = ()
    wanted: Manifest | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        fields = f": {', '.join(self.paths)}" if self.paths else ""
        return f"{self.where}: {self.resource} {self.kind}{fields}{_REMEDIES.get(self.kind, '')}"

    def dump(self) -> dict[str, Any]:
        """The difference as JSON types."""
        return {key: getattr(self, key) for key in ("where", "resource", "kind", "paths")}


def differing_paths(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[str, ...]:
    """Dotted paths of the fields in which two versions of an object differ, without its status."""
    return tuple(
        path
        for path in _paths(_compared(found), _compared(wanted), prefix="")
        if path.removeprefix("metadata.") not in _UNCOMPARED
    )


def _compared(one: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in one.get("metadata", {}).items() if key not in _UNCOMPARED}
    return {**{key: value for key, value in one.items() if key not in {"status", "metadata"}}, "metadata": metadata}


def _paths(found: Any, wanted: Any, *, prefix: str) -> Iterator[str]:  # noqa: ANN401 - JSON of any shape
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        for key in sorted({*found, *wanted}):
            yield from _paths(found.get(key), wanted.get(key), prefix=f"{prefix}.{key}" if prefix else key)
    elif isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
            yield from _paths(one, other, prefix=f"{prefix}[{index}]")
    elif found != wanted:
        yield prefix


def has_secret(value: Any) -> bool:  # noqa: ANN401 - JSON of any shape
    """Whether a value of a state, or one in it, is encrypted."""
    if isinstance(value, Mapping):
        return _SECRET in value or any(map(has_secret, value.values()))
    return isinstance(value, list) and any(map(has_secret, value))
