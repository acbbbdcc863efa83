"""What runs on the cluster of a recording, for the picture: namespaces, charts, workloads and queues.

Every Kubernetes object of the stack is in exactly one box, count or frame; `shown` says in which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from infra.preview.graph import shown
from infra.preview.recording import Recording, Resource

_PREFIX = "kubernetes:"
_CLUSTER_WIDE = ""


class Style(Enum):
    """What a box stands for."""

    CHART = "chart"
    WORKLOAD = "workload"
    QUEUE = "queue"
    OBJECTS = "objects"


@dataclass(frozen=True, kw_only=True)
class Box:
    """A box in a namespace.

    Attributes:
        title: its first line.
        facts: the text under it.
        style: what it stands for.
        urns: the resources that it shows.
    """

    title: str
    facts: str
    style: Style
    urns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Namespace:
    """A namespace, or the objects that are in none.

    Attributes:
        name: its name; empty for objects that are in none.
        facts: its Pod Security level, if the stack sets one.
        is_team: whether it has a queue, as those of the teams do.
        boxes: what is shown by name, charts first.
        counts: how many other objects it has, by kind.
        urns: the namespace itself, if the stack makes it, and the counted objects.
    """

    name: str
    facts: str
    is_team: bool
    boxes: tuple[Box, ...]
    counts: Mapping[str, int]
    urns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The cluster.

    Attributes:
        cluster_wide: objects that are in no namespace.
        namespaces: in the order in which they are drawn; those of the teams are neighbours.
        cohorts: title and facts of the frame around the teams, for each cohort; none without queues.
        urns: resources that the frame shows.
    """

    cluster_wide: Namespace
    namespaces: tuple[Namespace, ...]
    cohorts: tuple[tuple[str, str], ...]
    urns: tuple[str, ...]


def namespace_of(resource: Resource) -> str:
    """The namespace that an object is in, a volume is claimed from, or a namespace is; empty if there is none."""
    kind, properties = shown.kind_of(resource), resource.properties
    if kind == "Namespace":
        return shown.name_of(resource)
    if kind == "PersistentVolume":
        return str((properties["spec"].get("claimRef") or {}).get("namespace", ""))
    place = properties if kind == "Release" else properties.get("metadata") or {}
    return str(place.get("namespace") or "")


def contents_of(recording: Recording, *, named: Iterable[str] = ()) -> Contents:
    """What runs on the cluster.

    Args:
        recording: the environment's graph.
        named: namespaces that are shown even if nothing of the stack is in them.
    """
    objects = [one for one in recording.resources if one.type.startswith(_PREFIX)]
    queues = {shown.name_of(one): one for one in objects if shown.kind_of(one) == "ClusterQueue"}
    places: dict[str, list[Resource]] = {name: [] for name in (_CLUSTER_WIDE, *named)}
    homes = _homes(objects)
    for one in objects:
        places.setdefault(homes.get(one.urn) or namespace_of(one), []).append(one)
    cohorts = [one for one in objects if shown.kind_of(one) == "Cohort"] if queues else []
    framed = {one.urn for one in cohorts}
    found = [
        _namespace(name, [one for one in members if one.urn not in framed], queues) for name, members in places.items()
    ]
    namespaces = sorted((one for one in found if one.name), key=lambda one: shown.place(one.name, is_team=one.is_team))
    return Contents(
        cluster_wide=next(one for one in found if not one.name),
        namespaces=tuple(namespaces),
        cohorts=tuple((f"Cohort {shown.name_of(one)}", shown.cohort_facts(one)) for one in cohorts),
        urns=tuple(sorted(framed)),
    )


def _homes(objects: Iterable[Resource]) -> Mapping[str, str]:
    """Namespaces of ClusterQueues: that of the LocalQueue which leads to it."""
    local = [one for one in objects if shown.kind_of(one) == "LocalQueue"]
    namespaces = {one.properties["spec"]["clusterQueue"]: namespace_of(one) for one in local}
    queues = [one for one in objects if shown.kind_of(one) == "ClusterQueue"]
    return {one.urn: namespaces.get(shown.name_of(one), _CLUSTER_WIDE) for one in queues}


def _namespace(name: str, members: list[Resource], queues: Mapping[str, Resource]) -> Namespace:
    boxes = tuple(_boxes(members, queues))
    taken = {urn for box in boxes for urn in box.urns}
    rest = [one for one in members if one.urn not in taken]
    itself = [one for one in rest if shown.kind_of(one) == "Namespace"]
    labels = itself[0].properties["metadata"].get("labels", {}) if itself else {}
    level = labels.get("pod-security.kubernetes.io/enforce")
    kinds = Counter(shown.kind_of(one) for one in rest if one not in itself)
    return Namespace(
        name=name,
        facts=f"Pod Security: {level}" if level else "",
        is_team=any(box.style is Style.QUEUE for box in boxes),
        boxes=boxes,
        counts=dict(sorted(kinds.items())),
        urns=tuple(one.urn for one in rest),
    )


def _boxes(members: list[Resource], queues: Mapping[str, Resource]) -> Iterator[Box]:
    by_kind: dict[str, list[Resource]] = {}
    for one in members:
        by_kind.setdefault(shown.shared_kind(one), []).append(one)
    for chart in by_kind.get("Release", ()):
        title = f"{shown.name_of(chart)} {chart.properties['version']}"
        yield Box(title=title, facts=shown.chart_facts(chart), style=Style.CHART, urns=(chart.urn,))
    for local in by_kind.get("LocalQueue", ()):
        queue = queues[local.properties["spec"]["clusterQueue"]]
        title = f"Local queue {shown.name_of(local)}"
        yield Box(title=title, facts=shown.queue_facts(queue), style=Style.QUEUE, urns=(local.urn, queue.urn))
    for kind, facts_of in shown.WORKLOADS.items():
        for one in by_kind.get(kind, ()):
            yield Box(title=shown.name_of(one), facts=facts_of(one), style=Style.WORKLOAD, urns=(one.urn,))
    yield from _volumes(by_kind)
    for kind, (title, words) in shown.SHARED.items():
        if found := by_kind.get(kind):
            yield Box(title=title, facts=words(found), style=Style.OBJECTS, urns=tuple(one.urn for one in found))


def _volumes(by_kind: Mapping[str, list[Resource]]) -> Iterator[Box]:
    """The claims of a namespace with their volumes."""
    claims = by_kind.get("PersistentVolumeClaim", [])
    volumes = {shown.name_of(one): one for one in by_kind.get("PersistentVolume", ())}
    if claims:
        bound = [volumes.get(claim.properties["spec"].get("volumeName", "")) for claim in claims]
        facts = map(shown.claim_facts, claims, bound)
        urns = (*(one.urn for one in claims), *(one.urn for one in bound if one))
        yield Box(title="Volumes", facts=", ".join(facts), style=Style.OBJECTS, urns=urns)
