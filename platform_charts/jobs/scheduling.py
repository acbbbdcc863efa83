"""Where the pods of a job may run, and how near each other."""

from __future__ import annotations

from infra.spec.manifest import Manifest
from infra.spec.outputs import GROUP_LABEL, LABEL_PREFIX
from platform_charts.jobs.placement import Placement
from platform_charts.placement import SYSTEM_NODES, toleration

JOB_LABEL = f"{LABEL_PREFIX}/job"
"""Label of everything that belongs to a job or a team's cluster: its name."""

_ZONE = "topology.kubernetes.io/zone"
_NETWORK_LAYER = "topology.k8s.aws/network-node-layer-3"
"""The switches a node hangs on, as EKS labels nodes with EFA (EC2 user guide, "Amazon EC2 instance topology")."""


def system_nodes() -> Manifest:
    """Selects the system nodes, which nobody takes back and no job fills."""
    return {"nodeSelector": dict(SYSTEM_NODES)}


def worker_nodes(job: str, placement: Placement) -> Manifest:
    """Selects the nodes of the workers of a job, and says how they lie to each other."""
    group = placement.group
    if group is None:
        return {**system_nodes(), **_apart(job), **_together(job, placement)}
    return {
        "nodeSelector": {GROUP_LABEL: group.name},
        "tolerations": [toleration(taint) for taint in group.taints],
        **_together(job, placement),
    }


def _together(job: str, placement: Placement) -> Manifest:
    """Prefers nodes near each other: by EC2's network layer where there is EFA, else one zone.

    It is a wish and no demand: the autoscaler cannot choose the zone of a node, and a demand would let the pod wait.
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
