"""What the status of any Kubernetes object says of itself, and how much of it is shown."""

from __future__ import annotations

from collections.abc import Sequence

from infra.spec.manifest import Manifest


def conditions(found: Manifest) -> Sequence[Manifest]:
    """The conditions of an object."""
    known: Sequence[Manifest] = (found.get("status") or {}).get("conditions", ())
    return known


def has_condition(found: Manifest, kind: str) -> bool:
    """Whether a condition of the object is true."""
    return any(one.get("type") == kind and one.get("status") == "True" for one in conditions(found))


def one_line(text: str, *, longest: int) -> str:
    """A message of somebody's on one line, cut where it has more characters than that."""
    words = " ".join(text.split())
    return words if len(words) <= longest else f"{words[:longest]} …"
