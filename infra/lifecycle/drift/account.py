"""Compares the account with the stack's state, by two previews: one of the state as it is, and one of what a refresh finds.

What only the second would change was changed in the account. What both would change is not deployed yet, and no drift.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.lifecycle.drift.difference import Difference, Where
from infra.policy.tokens import HELM_RELEASE

_SAME = frozenset({"same", "read", "refresh"})
_UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""Stands in a preview for a value that is not known yet (pulumi, sdk/go/common/resource/plugin, `UnknownStringValue`)."""


@dataclass(frozen=True, kw_only=True)
class _Change:
    """What a preview does to one resource; a replacement is up to three steps of one URN.

    Attributes:
        is_new: it is created, and replaces nothing.
        paths: paths of the inputs that change and are known.
    """

    is_new: bool
    paths: frozenset[str]


def compare_previews(plain: Mapping[str, Any], refreshed: Mapping[str, Any]) -> Iterator[Difference]:
    """How the account differs from the state.

    Args:
        plain: the document of `pulumi preview --json`.
        refreshed: that of `pulumi preview --refresh --json`.
    """
    expected = _changes(plain)
    for urn, found in _changes(refreshed).items():
        before, type_ = expected.get(urn), _type_of(urn)
        # Kubernetes objects are compared with the cluster itself, and those of a release unless it is gone.
        if type_.startswith("kubernetes:") and not (type_ == HELM_RELEASE and found.is_new):
            continue
        if found.is_new:
            if before is None or not before.is_new:
                where: Where = "cluster" if type_ == HELM_RELEASE else "account"
                yield Difference(where=where, resource=_name(urn), kind="deleted")
            continue
        paths = found.paths if before is None else found.paths - before.paths
        if paths:
            yield Difference(where="account", resource=_name(urn), kind="changed", paths=tuple(sorted(paths)))


def undeployed(plain: Mapping[str, Any]) -> int:
    """How many resources the program would change without any drift."""
    return len(_changes(plain))


def _changes(preview: Mapping[str, Any]) -> dict[str, _Change]:
    """What the preview does to each resource that it changes, but those that only group others."""
    found: dict[str, _Change] = {}
    for one in preview.get("steps") or ():
        urn = str(one["urn"])
        if one["op"] in _SAME or _type_of(urn).startswith(("rtp:", "pulumi:")):
            continue
        known = found.get(urn, _Change(is_new=True, paths=frozenset()))
        found[urn] = _Change(is_new=known.is_new and one["op"] == "create", paths=known.paths.union(_known_paths(one)))
    return found


def _known_paths(one: Mapping[str, Any]) -> Iterator[str]:
    """Paths of the inputs that a step changes; a provider without a detailed diff names the inputs only.

    An input that is not known yet comes from another resource, which somebody has deleted: nobody has changed this one.
    """
    inputs = (one.get("newState") or {}).get("inputs") or {}
    for path in one.get("detailedDiff") or one.get("diffReasons") or one.get("replaceReasons") or ():
        if not _is_unknown(inputs.get(path.replace("[", ".").partition(".")[0])):
            yield path


def _is_unknown(value: Any) -> bool:  # noqa: ANN401 - JSON of any shape
    if isinstance(value, Mapping):
        return any(map(_is_unknown, value.values()))
    return any(map(_is_unknown, value)) if isinstance(value, list) else value == _UNKNOWN


def _name(urn: str) -> str:
    return f"{_type_of(urn).rpartition(':')[2]} {urn.rpartition('::')[2]}"


def _type_of(urn: str) -> str:
    return urn.split("::")[2].rpartition("$")[2]
