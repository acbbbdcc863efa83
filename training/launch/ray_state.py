"""What Ray itself knows after a failure: nodes, actors with the reason of their death, and placement groups.

    failures/attempt-0-ray.json

It is read from Ray's metadata service, which a local node has too, unlike the state API's dashboard. A dead actor stays there until
the cluster ends, and the cluster of a job ends with it. The file is for people (`training.postmortem`); no decision rests on it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from ray._private import state as ray_state

from training.evidence import FOLDER
from training.launch.task import RankTask

_PATIENCE_S = 3.0
"""Longest delay of a restart; a metadata service that is lost answers after a minute."""

_MOST = 50
_LONGEST = 1000


class Fact(NamedTuple):
    """A part of Ray's state, as the file has it.

    Attributes:
        what: node, actor or placement group, with what tells it apart.
        state: e.g. DEAD.
        why: Ray's reason; may be empty.
    """

    what: str
    state: str
    why: str


def keep(task: RankTask, *, since: float) -> None:
    """Write Ray's state into the run's folder, within a few seconds or not at all; raises nothing.

    Args:
        task: the attempt that failed.
        since: Unix time of its start: actors that had ended before are not its own.
    """
    thread = threading.Thread(target=_write, args=(task, since), name="ray-state", daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)


def _write(task: RankTask, since: float) -> None:
    with suppress(Exception):  # Ray's state is in whatever condition the failure left it
        facts = [*_nodes(), *_actors(since), *_placement_groups()]
        path = task.run_directory / FOLDER / f"attempt-{task.attempt}-ray.json"
        path.parent.mkdir(exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps([one._asdict() for one in facts]), encoding="utf-8")
        partial.replace(path)


def _nodes() -> Iterable[Fact]:
    nodes = sorted(ray_state.state.node_table(), key=lambda node: bool(node["Alive"]))
    for node in nodes[:_MOST]:
        why = node.get("DeathReasonMessage") or ""
        yield Fact(f"node {node['NodeManagerAddress']}", "ALIVE" if node["Alive"] else "DEAD", why[:_LONGEST])


def _actors(since: float) -> Iterable[Fact]:
    """The actors that lived in the attempt, those that died first first: the others were ended with the group."""
    now = time.time() * 1000
    lived = [one for one in ray_state.state.actor_table(None).values() if (one["EndTime"] or now) >= since * 1000]
    for actor in sorted(lived, key=lambda one: one["EndTime"] or now)[:_MOST]:
        name = actor["Name"] or actor["ActorClassName"]
        where = f"actor {name} (process {actor['Pid']} on {actor['Address']['IPAddress']})"
        yield Fact(where, actor["State"], _death(actor["DeathCause"])[:_LONGEST])


def _death(cause: Any) -> str:  # noqa: ANN401 - a protocol buffer of Ray's
    context = cause.WhichOneof("context")
    return "" if context is None else str(getattr(getattr(cause, context), "error_message", ""))


def _placement_groups() -> Iterable[Fact]:
    groups: Mapping[str, Mapping[str, Any]] = ray_state.state.placement_group_table()
    pending = [one for one in groups.values() if one["state"] != "REMOVED"]
    for group in pending[:_MOST]:
        yield Fact(f"placement group of {len(group['bundles'])} bundles", str(group["state"]), "")
