"""The next step from what an elastic job has to what it should have; pure functions of its objects.

Kueue is asked first when a job grows, and told last when it shrinks. Every step is decided anew from the objects, so that a
restart of the program forgets nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .sizing import Target


@dataclass(frozen=True, kw_only=True)
class WorkerPod:
    """A worker pod that has not ended.

    Attributes:
        name: of the pod.
        node: name of its node; empty before it has one.
        created: its time of creation, as the API server writes it.
        is_ready: whether its containers are.
        is_going: it was asked to end.
    """

    name: str
    node: str
    created: str
    is_ready: bool
    is_going: bool


@dataclass(frozen=True, kw_only=True)
class Holding:
    """What an elastic job has.

    Attributes:
        sizes: the numbers of worker pods that its run can use, ascending.
        asked: worker pods in the spec of the RayJob, which Kueue counts.
        admitted: worker pods that Kueue has admitted; None while the job is queued.
        cluster: worker pods in the spec of the RayCluster, which KubeRay makes; None before there is one.
        pods: the worker pods.
        has_waited: Kueue has not admitted for a while what the job asks for.
    """

    sizes: Sequence[int]
    asked: int
    admitted: int | None
    cluster: int | None
    pods: Sequence[WorkerPod]
    has_waited: bool = False


@dataclass(frozen=True, kw_only=True)
class Step:
    """What to write.

    Attributes:
        asked: worker pods of the RayJob; None to leave them.
        cluster: worker pods of the RayCluster; None to leave them.
        leaving: names of the pods that end, those that were asked before included.
        text: what becomes of the job, in one line.
    """

    asked: int | None = None
    cluster: int | None = None
    leaving: tuple[str, ...] = ()
    text: str = ""


def next_step(holding: Holding, target: Target | None) -> Step:
    """The next step towards a target; None for a job that holds no quota."""
    span = _span(holding.sizes)
    if holding.admitted is None or target is None:
        # It is queued with the fewest, or it has lost its quota while it asked for more: it keeps no more than the fewest.
        least = holding.sizes[0]
        return _step(holding, asked=least, cluster=least, text=f"waits for {least} of {span}")
    admitted = holding.admitted
    if target.pods >= admitted:
        more = target.pods > admitted
        text = f"{admitted} of {span}" + (f"; asks for {target.pods}" if more else "")
        # The figures of the queues may be newer than those of the job: what Kueue admits just now looks as if it did not fit.
        asked = target.pods if holding.has_waited else max(target.pods, min(holding.asked, holding.sizes[-1]))
        return _step(holding, asked=asked, cluster=admitted, text=text)
    # A pod that ends holds its GPUs, and its quota.
    is_done = len(holding.pods) <= target.pods
    receiver = f" to {', '.join(target.claims)}" if target.claims else ""
    returned = f"{admitted - target.pods}{receiver}"
    is_limited = admitted > holding.sizes[-1]
    having = f"{admitted} worker pods, limited to {holding.sizes[-1]}" if is_limited else f"{admitted} of {span}"
    return _step(
        holding,
        asked=target.pods if is_done else admitted,
        cluster=target.pods,
        text=f"{target.pods} of {span}; returned {returned}" if is_done else f"{having}; returns {returned}",
    )


def _span(sizes: Sequence[int]) -> str:
    """The sizes of a job, e.g. `1-4 worker pods`."""
    if len(sizes) > 1:
        return f"{sizes[0]}-{sizes[-1]} worker pods"
    return f"{sizes[0]} worker pod{'s' * (sizes[0] != 1)}"


def _step(holding: Holding, *, asked: int, cluster: int, text: str) -> Step:
    going = [pod.name for pod in holding.pods if pod.is_going]
    stay_order = _stay_order([pod for pod in holding.pods if not pod.is_going])
    has_cluster = holding.cluster is not None and holding.cluster != cluster
    return Step(
        asked=asked if asked != holding.asked else None,
        cluster=cluster if has_cluster else None,
        leaving=tuple(sorted([*going, *(pod.name for pod in stay_order[cluster:])])) if has_cluster else (),
        text=text,
    )


def _stay_order(pods: Sequence[WorkerPod]) -> list[WorkerPod]:
    """The pods, those first that are the last to leave: the ready ones, and of them those on the nodes that the job had first.

    So whole nodes become free, and a waiting job may need one.
    """
    since: dict[str, str] = {}
    for pod in pods:
        since[pod.node] = min(since.get(pod.node, pod.created), pod.created)
    return sorted(pods, key=lambda pod: (not pod.is_ready, since[pod.node], pod.node, pod.created, pod.name))
