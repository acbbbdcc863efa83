"""What Ray knew after a failure, as the run's folder keeps it: nodes, actors with the reason of their death, placement groups, resources.

    failures/attempt-0-ray.json

`training.launch.ray_state` writes it. Imports no Ray: the driver asks it for the cause of a failure, and `training.postmortem` shows it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from training.evidence import FOLDER

MISSING: Final = "MISSING"
"""State of the fact that says which resources the ranks asked for and the cluster does not have."""

SILENT: Final = "SILENT"
"""State of a node of the ranks whose raylet does not answer. Ray itself takes half a minute to call it dead."""

_LOST_WITH_NODE = ("its node has died", "node was terminated")
"""Parts of Ray's reasons for the death of an actor (gcs_actor_manager.cc)."""


class Fact(NamedTuple):
    """A part of Ray's state.

    Attributes:
        what: node, actor, placement group or resources, with what tells it apart.
        state: e.g. DEAD.
        why: Ray's reason; may be empty.
    """

    what: str
    state: str
    why: str


class Node(NamedTuple):
    """A node of the cluster that is alive.

    Attributes:
        name: its address.
        total: what it offers, by resource.
        free: what of that is not in use.
    """

    name: str
    total: Mapping[str, float]
    free: Mapping[str, float]


def file(run_directory: Path, *, attempt: int) -> Path:
    """The file of an attempt."""
    return run_directory / FOLDER / f"attempt-{attempt}-ray.json"


def read(run_directory: Path, *, attempt: int) -> list[Fact]:
    """The facts of an attempt; none if Ray did not answer in time, or no Ray was there."""
    with suppress(OSError, ValueError, TypeError):
        return [Fact(**one) for one in json.loads(file(run_directory, attempt=attempt).read_text(encoding="utf-8"))]
    return []


def lost_with_node(facts: Sequence[Fact]) -> str:
    """Ray's reason for the death of an actor that died with its node, or which node does not answer; empty if none is lost."""
    died = (fact.why for fact in facts if any(part in fact.why for part in _LOST_WITH_NODE))
    silent = (f"{fact.what} does not answer: {fact.why}" for fact in facts if fact.state == SILENT)
    return next(died, "") or next(silent, "")


def shortage(facts: Sequence[Fact]) -> str:
    """What the ranks asked for and what the cluster has, in a line; empty if that was enough."""
    return next((fact.why for fact in facts if fact.state == MISSING), "")


def missing(ranks: int, each: Mapping[str, float], nodes: Sequence[Node], *, were_placed: bool) -> str:
    """What `ranks` ranks that need `each` lack on these nodes, in a line; empty if they fit.

    Args:
        ranks: number of ranks.
        each: resources of one rank.
        nodes: that are alive.
        were_placed: the ranks had their resources, which may not be free again by now.
    """
    in_all = sum(_room(each, node.total) for node in nodes)
    free = sum(_room(each, node.free) for node in nodes)
    if in_all >= ranks and (were_placed or free >= ranks):
        return ""
    asked = f"{ranks} ranks with {_text(each)} each" if ranks > 1 else f"a rank with {_text(each)}"
    have = "; ".join(f"{node.name} has {_text(node.total)}, free {_text(_like(node.free, each))}" for node in nodes)
    return (
        f"requested: {asked}; available: room for {free if in_all >= ranks else in_all} ({have or 'no node is alive'})"
    )


def _room(each: Mapping[str, float], offered: Mapping[str, float]) -> int:
    """Ranks that fit a node."""
    return min(int(offered.get(name, 0.0) // amount) for name, amount in each.items())


def _like(offered: Mapping[str, float], each: Mapping[str, float]) -> dict[str, float]:
    return {name: offered.get(name, 0.0) for name in each}


def _text(resources: Mapping[str, float]) -> str:
    """`CPU 4, GPU 1`: without memory, object store and the names of nodes."""
    return (
        ", ".join(f"{name} {resources.get(name, 0.0):g}" for name in ("CPU", "GPU") if name in resources) or "nothing"
    )
