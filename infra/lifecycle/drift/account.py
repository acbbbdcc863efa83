"""Compares the account with the stack's state, by one preview after a refresh in memory.

Its steps have three versions of a resource's inputs: those of the state, before it is refreshed; those that there are, from which it would
be changed; and the program's. What the program would change was changed in the account if the first two differ. If they do not, it is not
deployed yet, and no drift.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from infra.lifecycle.drift.difference import Difference, Where
from infra.policy.tokens import HELM_RELEASE

_UNCHANGED = frozenset({"same", "read"})
_REFRESH = "refresh"
_UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""Stands in a preview for a value that is not known yet (pulumi, sdk/go/common/resource/plugin, `UnknownStringValue`)."""

_PART = re.compile(r'\["([^"]*)"\]|\[(\d+)\]|([^.\[\]]+)')
"""Key or index in a path, as `tags["a.b"]` and `subnetIds[0]` have them."""


@dataclass(kw_only=True)
class _Change:
    """What a preview does to one resource; a replacement is up to three steps of one URN.

    Attributes:
        is_new: it is created, and replaces nothing.
        paths: paths of the inputs that change and are known.
        outside: those of them that differ between the state and the account.
        is_deleted: the program does not have it any more.
    """

    is_new: bool = True
    is_deleted: bool = False
    paths: set[str] = field(default_factory=set)
    outside: set[str] = field(default_factory=set)


class AccountDrift(NamedTuple):
    """What a preview after a refresh says.

    Attributes:
        differences: how the account differs from the state, and which releases are gone.
        undeployed: number of resources that the program would change without any drift.
    """

    differences: tuple[Difference, ...]
    undeployed: int


def compare_preview(preview: Mapping[str, Any], *, releases: Collection[str] = ()) -> AccountDrift:
    """How the account differs from the state.

    Args:
        preview: the document of `pulumi preview --refresh --json`.
        releases: names of the Helm releases that somebody has changed, whose inputs a refresh does not read.
    """
    before = _inputs_of_state(preview)
    changes = _changes(preview, before)
    theirs = {urn for urn in changes if _type_of(urn) == HELM_RELEASE and urn.rpartition("::")[2] in releases}
    waiting = {urn for urn, one in changes.items() if one.is_deleted or urn not in before or one.paths > one.outside}
    return AccountDrift(tuple(_differences(changes, before)), len(waiting - theirs))


def _differences(changes: Mapping[str, _Change], before: Mapping[str, Mapping[str, Any]]) -> Iterator[Difference]:
    for urn, found in changes.items():
        type_ = _type_of(urn)
        is_gone = found.is_new and urn in before
        # Kubernetes objects are compared with the cluster itself, and those of a release unless it is gone.
        if type_.startswith("kubernetes:") and not (type_ == HELM_RELEASE and is_gone):
            continue
        if is_gone:
            where: Where = "cluster" if type_ == HELM_RELEASE else "account"
            yield Difference(where=where, resource=_name(urn), kind="deleted")
        elif found.outside:
            yield Difference(where="account", resource=_name(urn), kind="changed", paths=tuple(sorted(found.outside)))


def _changes(preview: Mapping[str, Any], before: Mapping[str, Mapping[str, Any]]) -> dict[str, _Change]:
    """What the preview does to each resource that it changes, but those that only group others."""
    found: dict[str, _Change] = {}
    for one in preview.get("steps") or ():
        urn, operation = str(one["urn"]), one["op"]
        if operation in {*_UNCHANGED, _REFRESH} or _type_of(urn).startswith(("rtp:", "pulumi:")):
            continue
        change = found.setdefault(urn, _Change())
        change.is_new &= operation == "create"
        change.is_deleted |= operation == "delete"
        change.paths.update(_known_paths(one))
        live = (one.get("oldState") or {}).get("inputs") or {}
        if live:
            change.outside.update(path for path in change.paths if _at(before.get(urn, {}), path) != _at(live, path))
    return found


def _inputs_of_state(preview: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The inputs of each resource in the state before the refresh, by URN."""
    steps = preview.get("steps") or ()
    return {str(one["urn"]): (one.get("oldState") or {}).get("inputs") or {} for one in steps if one["op"] == _REFRESH}


def _known_paths(one: Mapping[str, Any]) -> Iterator[str]:
    """Paths of the inputs that a step changes; a provider without a detailed diff names the inputs only.

    An input that is not known yet comes from another resource, which somebody has deleted: nobody has changed this one.
    """
    inputs = (one.get("newState") or {}).get("inputs") or {}
    for path in one.get("detailedDiff") or one.get("diffReasons") or one.get("replaceReasons") or ():
        if not _is_unknown(inputs.get(path.replace("[", ".").partition(".")[0])):
            yield path


def _at(inputs: Any, path: str) -> Any:  # noqa: ANN401 - JSON of any shape
    """The value at a path; None if there is none."""
    for quoted, index, key in _PART.findall(path):
        if isinstance(inputs, Mapping):
            inputs = inputs.get(quoted or key or index)
        elif isinstance(inputs, list) and index and int(index) < len(inputs):
            inputs = inputs[int(index)]
        else:
            return None
    return inputs


def _is_unknown(value: Any) -> bool:  # noqa: ANN401 - JSON of any shape
    if isinstance(value, Mapping):
        return any(map(_is_unknown, value.values()))
    return any(map(_is_unknown, value)) if isinstance(value, list) else value == _UNKNOWN


def _name(urn: str) -> str:
    return f"{_type_of(urn).rpartition(':')[2]} {urn.rpartition('::')[2]}"


def _type_of(urn: str) -> str:
    return urn.split("::")[2].rpartition("$")[2]
