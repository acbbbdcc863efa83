"""Deletes objects of the cluster, and waits until their controllers have let go of them."""

from __future__ import annotations

import time
from collections.abc import Callable

from infra.kube.api import KubernetesApi
from infra.spec.manifest import Manifest

Find = Callable[[], list[Manifest]]

_POLL_SECONDS = 1.0
_REPORT_SECONDS = 15.0


def delete_all(
    api: KubernetesApi,
    find: Find,
    *,
    what: str,
    say: Callable[[str], None],
    seconds: float,
    free: Callable[[list[Manifest]], None] = lambda _left: None,
) -> list[Manifest]:
    """Delete what `find` finds, until it finds nothing or the time is up.

    Args:
        api: the cluster's API server.
        find: lists what is to go; called again and again, because more may come while controllers run.
        what: what is found, in the plural, for the lines of progress.
        say: prints a line of progress.
        seconds: how long to wait.
        free: called with what is left after each look, to let go of what nobody else will.

    Returns:
        What is left.

    Raises:
        ApiError: the API server rejects a request.
        ConnectionLostError: it does not answer.
    """
    began = reported = time.monotonic()
    before = 0
    while left := find():
        for one in left:
            # A controller would create again what it owns.
            if not is_deleted(one) and not one["metadata"].get("ownerReferences"):
                api.delete(one)
        now = time.monotonic()
        if now - began > seconds:
            return left
        if len(left) != before or now - reported > _REPORT_SECONDS:
            say(f"deleting {len(left)} {what}: {describe(left)}")
            before, reported = len(left), now
        free(left)
        time.sleep(_POLL_SECONDS)
    return []


def is_deleted(one: Manifest) -> bool:
    """Whether its deletion was requested; it exists until its last finalizer is removed."""
    return "deletionTimestamp" in one["metadata"]


def finalizers(one: Manifest) -> list[str]:
    """What must happen before it is gone."""
    return list(one["metadata"].get("finalizers") or ())


def keepers(one: Manifest) -> tuple[str, ...]:
    """What must happen before it is gone; of a namespace, what Kubernetes says about its content too."""
    conditions = one.get("status", {}).get("conditions") or () if one["kind"] == "Namespace" else ()
    return (*finalizers(one), *(each["message"] for each in conditions if each["status"] == "True"))


def describe(objects: list[Manifest], *, at_most: int = 5) -> str:
    """Kinds and names, e.g. `RayJob research/digits, 3 more`."""
    named = [name_of(one) for one in objects[:at_most]]
    return ", ".join([*named, *([f"{len(objects) - at_most} more"] if len(objects) > at_most else [])])


def name_of(one: Manifest) -> str:
    """Kind, namespace and name."""
    namespace = one["metadata"].get("namespace")
    return f"{one['kind']} {f'{namespace}/' if namespace else ''}{one['metadata']['name']}"


def lines_of(left: list[Manifest]) -> str:
    """A line for each object with its finalizers, each after a line break."""
    return "".join(f"\n  {name_of(one)}: finalizers {', '.join(finalizers(one)) or 'none'}" for one in left)


def command_that_frees(one: Manifest) -> str:
    """The kubectl command that removes an object's finalizers."""
    group = one["apiVersion"].rpartition("/")[0]
    kind = f"{one['kind'].lower()}.{group}" if group else one["kind"].lower()
    namespace = one["metadata"].get("namespace")
    where = f"-n {namespace} " if namespace else ""
    patch = '{"metadata":{"finalizers":null}}'
    return f"kubectl {where}patch {kind} {one['metadata']['name']} --type merge -p '{patch}'"
