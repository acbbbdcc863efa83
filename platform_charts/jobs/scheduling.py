"""On which nodes the pods of a job run, and how close to each other."""

from __future__ import annotations

from infra.spec.manifest import Manifest
from infra.spec.node_labels import LABEL_PREFIX
from platform_charts.jobs.placement import Placement
from platform_charts.placement import SYSTEM_NODES, toleration

JOB_LABEL = f"{LABEL_PREFIX}/job"
"""Label of everything that belongs to a job or a team's cluster: its name."""

_ZONE = "topology.kubernetes.io/zone"
_NETWORK_LAYER = "topology.k8s.aws/network-node-layer-3"
"""The network layer nearest to the node, as EKS labels nodes with EFA (EC2 user guide, "Amazon EC2 instance topology")."""


def system_nodes() -> Manifest:
    """Selects the system nodes, which are never reclaimed and which no job fills."""
    return {"nodeSelector": dict(SYSTEM_NODES)}


def worker_nodes(job: str, placement: Placement) -> Manifest:
    """Selects the nodes of a job's workers, and how close to each other they should be."""
    group = placement.group
    if group is None:
        return {**system_nodes(), **_apart(job), **_together(job, placement)}
    return {
        "nodeSelector": group.selector,
        "tolerations": [toleration(taint) for taint in group.taints],
        **_together(job, placement),
    }


def _together(job: str, placement: Placement) -> Manifest:
    """Prefers nodes near each other: by EC2's network layer where there is EFA, else one zone.

    A preference, not a requirement: the autoscaler cannot choose the zone of a node, and a requirement would leave the pod pending.
    """
    if placement.pods == 1:
        return {}
    keys = [_NETWORK_LAYER, _ZONE] if placement.efa else [_ZONE]
    terms = [
        {"weight": 100, "podAffinityTerm": {"topologyKey": key, "labelSelector": _workers_of(job)}} for key in keys
    ]
    return {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}


def _apart(job: str) -> Manifest:
    """Spreads ranks on CPUs over the system nodes, which they share with the platform."""
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    return {"topologySpreadConstraints": [{**spread, "labelSelector": _workers_of(job)}]}


def _workers_of(job: str) -> Manifest:
    return {"matchLabels": {JOB_LABEL: job, "ray.io/node-type": "worker"}}
