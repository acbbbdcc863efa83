"""On which nodes the pods of a job run, and how close to each other."""

from __future__ import annotations

from collections.abc import Sequence

from infra.spec.manifest import Manifest
from infra.spec.node_labels import (
    GROUP_LABEL,
    HEAD_GROUP,
    HEAD_TAINT,
    LABEL_PREFIX,
    NO_CAPACITY_TAINT,
    group_selector,
    network_layer_label,
)
from infra.spec.outputs import GpuGroupOutput
from platform_charts.jobs.placement import Placement
from platform_charts.placement import toleration

JOB_LABEL = f"{LABEL_PREFIX}/job"
"""Label of everything that belongs to a job or a team's cluster: its name."""

_ZONE = "topology.kubernetes.io/zone"
_NEAREST_LAYERS = (network_layer_label(4), network_layer_label(3))
"""The network layer nearest to the node, of types with four layers and of types with three (EC2 user guide, "Prerequisites for
Amazon EC2 topology")."""


def head_nodes() -> Manifest:
    """Selects the head nodes, for pods that need no GPU: AWS does not reclaim them, and an update of the system nodes spares them."""
    return {"nodeSelector": group_selector(HEAD_GROUP), "tolerations": [toleration(HEAD_TAINT)]}


def worker_nodes(job: str, placement: Placement) -> Manifest:
    """Selects the nodes of a job's workers, and how close to each other they should be."""
    groups = placement.groups
    if not groups:
        return {**head_nodes(), **_apart(job), **_affinity(preferred=[_near(job, _ZONE)])}
    if len(groups) == 1:
        # It has no other group to try, and may fit on nodes that exist.
        tolerations = [toleration(taint) for taint in (*groups[0].taints, NO_CAPACITY_TAINT)]
        return {"nodeSelector": groups[0].selector, "tolerations": tolerations, **_together(job, placement)}
    taints = {taint.key: taint for group in groups for taint in group.taints}
    tolerations = [toleration(taint) for taint in taints.values()]
    together = _together(job, placement).get("affinity", {})
    return {"tolerations": tolerations, "affinity": {"nodeAffinity": _one_of(groups), **together}}


def topology(placement: Placement) -> dict[str, str]:
    """Annotations of workers in a group whose nodes Kueue assigns: it tries one part of the lowest layer, then of the layer above.

    A pod without one of them is not admitted to such a group (Kueue, "Topology-aware scheduling").
    """
    layers = placement.groups[0].network_layers if placement.groups else 0
    if not layers:
        return {}
    if placement.most_pods == 1:
        return {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
    return {"kueue.x-k8s.io/podset-preferred-topology": network_layer_label(layers)}


def _one_of(groups: Sequence[GpuGroupOutput]) -> Manifest:
    """Allows the flavors of these groups. At admission Kueue adds the node selector of the one that it assigns to all workers."""
    expression = {"key": GROUP_LABEL, "operator": "In", "values": [group.name for group in groups]}
    terms = [{"matchExpressions": [expression]}]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def _together(job: str, placement: Placement) -> Manifest:
    """Requires one zone, and prefers nodes near each other by EC2's network layer where there is EFA.

    The first pod chooses the zone: a pod may require a zone with pods like itself if there are none yet. The others follow it,
    and the autoscaler starts their nodes in that zone, because a group has a managed node group per zone. If the zone
    has no capacity, Kueue evicts the job after `READY_TIMEOUT_MINUTES`, and the next attempt is free to use another zone.
    """
    if placement.most_pods == 1 or placement.groups[0].network_layers:
        return {}
    preferred = [_near(job, layer) for layer in _NEAREST_LAYERS] if placement.efa else []
    return _affinity(required=[_near(job, _ZONE)], preferred=preferred)


def _affinity(*, required: Sequence[Manifest] = (), preferred: Sequence[Manifest] = ()) -> Manifest:
    weighted = [{"weight": 100, "podAffinityTerm": term} for term in preferred]
    terms = {
        "requiredDuringSchedulingIgnoredDuringExecution": list(required),
        "preferredDuringSchedulingIgnoredDuringExecution": weighted,
    }
    return {"affinity": {"podAffinity": {kind: some for kind, some in terms.items() if some}}}


def _near(job: str, key: str) -> Manifest:
    return {"topologyKey": key, "labelSelector": _workers_of(job)}


def _apart(job: str) -> Manifest:
    """Spreads ranks on CPUs over the head nodes, so that they do not share a node's cores."""
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    return {"topologySpreadConstraints": [{**spread, "labelSelector": _workers_of(job)}]}


def _workers_of(job: str) -> Manifest:
    return {"matchLabels": {JOB_LABEL: job, "ray.io/node-type": "worker"}}
