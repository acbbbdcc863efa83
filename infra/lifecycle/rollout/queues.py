"""Holds the teams' queues: Kueue then admits no job, and on request evicts those that run, until the queues are released.

A hold is one server-side apply by a field manager of its own, of `spec.stopPolicy` and an annotation with the policy before. The
stack's ClusterQueues do not set the field, so an `up` meanwhile leaves it alone, and the annotation tells a later command that
the hold is ours, if the command that made it was killed. A second annotation marks the hold of an update, which ends with it or with
the next one; its value changes for as long as the update runs. A hold that a user asked for stays until the user releases it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal

from infra.kube.api import KubernetesApi
from infra.spec.cluster_names import KUEUE_API
from infra.spec.manifest import MANAGED_BY, Manifest, api_object
from infra.spec.node_labels import LABEL_PREFIX

HoldMode = Literal["Hold", "HoldAndDrain"]
"""Kueue's stop policies: jobs that run go on (`Hold`), or are evicted and queued again (`HoldAndDrain`)."""

HELD = f"{LABEL_PREFIX}/held"
"""Annotation of a ClusterQueue that a command holds; its value is the stop policy before."""

_BY_UPDATE = f"{LABEL_PREFIX}/held-by-update"
"""Annotation of a ClusterQueue that an update holds; its value is when the update renewed it last."""

_MANAGER = f"{LABEL_PREFIX}-hold"
_OURS = f"app.kubernetes.io/managed-by={MANAGED_BY}"
_OPEN = "None"
"""Kueue's default policy."""


def hold_queues(api: KubernetesApi, mode: HoldMode, *, by_update: bool = False) -> tuple[str, ...]:
    """Hold every queue of the stack; repeating it with another mode changes the mode.

    A queue that an administrator has drained stays as it is, and one that a user holds stays the user's.

    Args:
        api: the API server, as an administrator.
        mode: whether jobs that run go on.
        by_update: only until the end of the update.

    Returns:
        names of the queues that are held by this command or an earlier one.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    held = []
    for queue in _queues(api):
        before = None if _is_stopped_by_hand(queue) else _held_before(queue)
        policy = _policy(queue)
        if before is None and policy in {mode, "HoldAndDrain"}:
            continue
        is_updates = by_update and (before is None or _is_of_update(queue))
        _apply(api, queue, policy=mode, before=policy if before is None else before, by_update=is_updates)
        held.append(_name(queue))
    return tuple(held)


def renew_holds(api: KubernetesApi) -> None:
    """Show that the update which holds queues still runs.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    for queue in _held(api, by_update=True):
        policy = None if _is_stopped_by_hand(queue) else _policy(queue)  # which would become ours
        _apply(api, queue, policy=policy, before=_held_before(queue), by_update=True)


def holds_of_updates(api: KubernetesApi) -> Mapping[str, str]:
    """The names of the queues that updates hold, and when each was renewed last.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    return {_name(one): one["metadata"]["annotations"][_BY_UPDATE] for one in _held(api, by_update=True)}


def stopped_queues(api: KubernetesApi) -> Mapping[str, str]:
    """The stop policies of the queues that somebody has stopped by hand, by name.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    return {_name(one): _policy(one) for one in _queues(api) if _is_stopped_by_hand(one)}


@contextmanager
def kept(api: KubernetesApi, *, say: Callable[[str], None]) -> Iterator[None]:
    """Keep what is stopped stopped while an update changes the queues, and hold new ones if the user holds others and none is open.

    Pulumi's provider takes over the fields that kubectl has set and removes those that the program does not have
    (pulumi-kubernetes, provider/pkg/await/await.go, `fixCSAFieldManagers`), but not those of our manager.

    Args:
        api: the API server, as an administrator.
        say: prints a line.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    before = _queues(api)
    for queue in before:
        if _is_stopped_by_hand(queue):
            _apply(api, queue, policy=_policy(queue), before=None)
    yield
    is_held = any(_held_before(one) is not None and not _is_of_update(one) for one in before)
    if is_held and all(_policy(one) != _OPEN for one in before):
        known = set(map(_name, before))
        new = [one for one in _queues(api) if _name(one) not in known]
        for queue in new:
            _apply(api, queue, policy="Hold", before=_policy(queue))
        if new:
            say(f"new queues are held like the others: {', '.join(map(_name, new))}")


def held_queues(api: KubernetesApi, *, by_update: bool = False) -> tuple[str, ...]:
    """Names of the queues that a command holds, or only an update; one that was killed may have left them so.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    return tuple(_name(queue) for queue in _held(api, by_update=by_update))


def release_queues(api: KubernetesApi, *, by_update: bool = False) -> tuple[str, ...]:
    """Give every queue that a command holds, or only those that an update does, the policy that it had before.

    One whose policy somebody has changed meanwhile keeps it, and is not held any more.

    Returns:
        names of the queues that it released.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    released = []
    for queue in _held(api, by_update=by_update):
        if _is_stopped_by_hand(queue):
            _apply(api, queue, policy=None, before=None)
            continue
        before = _held_before(queue)
        _apply(api, queue, policy=None if before == _OPEN else before, before=None)
        released.append(_name(queue))
    return tuple(released)


def _held(api: KubernetesApi, *, by_update: bool) -> Iterator[Manifest]:
    for queue in _queues(api):
        if _held_before(queue) is not None and (_is_of_update(queue) or not by_update):
            yield queue


def _queues(api: KubernetesApi) -> list[Manifest]:
    """The stack's queues; none before the first `up` has installed Kueue."""
    return api.items_if_served(KUEUE_API, "ClusterQueue", labels=_OURS)


def _apply(
    api: KubernetesApi, queue: Manifest, *, policy: str | None, before: str | None, by_update: bool = False
) -> None:
    """Apply exactly these fields; those that an earlier apply had and this one lacks are removed, and defaulted."""
    annotations = (
        None if before is None else {HELD: before, **({_BY_UPDATE: datetime.now(UTC).isoformat()} if by_update else {})}
    )
    wanted = api_object(KUEUE_API, "ClusterQueue", _name(queue), annotations=annotations)
    if policy is not None:
        wanted["spec"] = {"stopPolicy": policy}
    api.apply(wanted, manager=_MANAGER)


def _held_before(queue: Manifest) -> str | None:
    found: str | None = queue["metadata"].get("annotations", {}).get(HELD)
    return found


def _is_stopped_by_hand(queue: Manifest) -> bool:
    """Whether somebody has stopped a queue that no command holds, or changed the policy of one that a command holds."""
    ours = (one["fieldsV1"] for one in queue["metadata"].get("managedFields", ()) if one["manager"] == _MANAGER)
    is_ours = any("f:stopPolicy" in fields.get("f:spec", {}) for fields in ours)
    return _policy(queue) != _OPEN and (_held_before(queue) is None or not is_ours)


def _is_of_update(queue: Manifest) -> bool:
    return _BY_UPDATE in queue["metadata"].get("annotations", {})


def _policy(queue: Manifest) -> str:
    return str(queue["spec"].get("stopPolicy", _OPEN))


def _name(queue: Manifest) -> str:
    return str(queue["metadata"]["name"])
