"""Writes down what Ray itself knows after a failure: `training.launch.ray_facts`.

It is read from Ray's metadata service, which a local node has too, unlike the state API's dashboard. A dead actor stays there until
the cluster ends, and the cluster of a job ends with it.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from ray._private import state as ray_state

from training.launch import ray_facts
from training.launch.ray_facts import MISSING, SILENT, Fact, Node
from training.launch.ray_trainer import needs_of_worker
from training.launch.task import RankTask

_PATIENCE_S = 3.0
"""Longest delay of a restart; a metadata service that is lost answers after a minute."""

_ANSWER_S = 1.0
"""Within which the raylet of a node answers."""

_POLL_S = 0.05

_RANK = "RayTrainWorker"
"""Part of the name of the class of Ray Train's workers."""

_MOST = 50
_LONGEST = 1000


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
        nodes = list(_nodes(since))
        if not any(fact.state == SILENT for fact in nodes):
            _await_death(since)
        facts = [*nodes, *_actors(since), *_placement_groups(), *_resources(task, since)]
        path = ray_facts.file(task.run_directory, attempt=task.attempt)
        path.parent.mkdir(exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps([one._asdict() for one in facts]), encoding="utf-8")
        partial.replace(path)


def _nodes(since: float) -> Iterable[Fact]:
    """The nodes, those that are lost first; those of the ranks are asked, and the others are as the metadata service knows them."""
    of_ranks = {one["Address"]["NodeID"] for one in _ranks(since)}
    nodes = sorted(
        ray_state.state.node_table(), key=lambda node: (bool(node["Alive"]), node["NodeID"] not in of_ranks)
    )[:_MOST]
    asked = [node for node in nodes if node["Alive"] and node["NodeID"] in of_ranks]
    with ThreadPoolExecutor(_MOST) as pool:
        silent = dict(zip((node["NodeID"] for node in asked), pool.map(_silence_of, asked), strict=True))
    for node in nodes:
        state, why = "ALIVE" if node["Alive"] else "DEAD", node.get("DeathReasonMessage") or ""
        if silence := silent.get(node["NodeID"]):
            state, why = SILENT, silence
        yield Fact(f"node {node['NodeManagerAddress']}", state, why[:_LONGEST])


def _silence_of(node: Mapping[str, Any]) -> str:
    """Why the raylet of a node cannot be reached; empty if it can."""
    try:
        with socket.create_connection((node["NodeManagerAddress"], node["NodeManagerPort"]), timeout=_ANSWER_S):
            return ""
    except OSError as error:
        return f"its raylet at port {node['NodeManagerPort']}: {error}"


def _actors(since: float) -> Iterable[Fact]:
    """The actors that lived in the attempt, those that died first first: the others were ended with the group."""
    now = time.time() * 1000
    for actor in sorted(_lived(since), key=lambda one: one["EndTime"] or now)[:_MOST]:
        name = actor["Name"] or actor["ActorClassName"]
        where = f"actor {name} (process {actor['Pid']} on {actor['Address']['IPAddress']})"
        yield Fact(where, actor["State"], _death(actor["DeathCause"])[:_LONGEST])


def _lived(since: float) -> list[Mapping[str, Any]]:
    actors: Mapping[str, Mapping[str, Any]] = ray_state.state.actor_table(None)
    return [one for one in actors.values() if not one["EndTime"] or one["EndTime"] >= since * 1000]


def _await_death(since: float) -> None:
    """Wait a moment until Ray knows that a worker is dead: the driver, whose connection to it broke, is the first to know."""
    deadline = time.monotonic() + _ANSWER_S
    while (ranks := _ranks(since)) and all(one["State"] != "DEAD" for one in ranks) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _ranks(since: float) -> list[Mapping[str, Any]]:
    return [one for one in _lived(since) if _RANK in one["ActorClassName"] and one["Pid"]]


def _death(cause: Any) -> str:  # noqa: ANN401 - a protocol buffer of Ray's
    context = cause.WhichOneof("context")
    return "" if context is None else str(getattr(getattr(cause, context), "error_message", ""))


def _placement_groups() -> Iterable[Fact]:
    groups: Mapping[str, Mapping[str, Any]] = ray_state.state.placement_group_table()
    pending = [one for one in groups.values() if one["state"] != "REMOVED"]
    for group in pending[:_MOST]:
        yield Fact(f"placement group of {len(group['bundles'])} bundles", str(group["state"]), "")


def _resources(task: RankTask, since: float) -> Iterable[Fact]:
    """What the ranks lack, if they did not fit the cluster."""
    scale = task.settings.scale
    free = ray_state.state.available_resources_per_node()
    nodes = [
        Node(name=node["NodeManagerAddress"], total=node["Resources"], free=free.get(node["NodeID"], {}))
        for node in ray_state.state.node_table()
        if node["Alive"]
    ]
    needed = scale.min_workers or scale.workers
    if lacks := ray_facts.missing(needed, needs_of_worker(scale), nodes, were_placed=len(_ranks(since)) >= needed):
        yield Fact("resources", MISSING, lacks[:_LONGEST])
