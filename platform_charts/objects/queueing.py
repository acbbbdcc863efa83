"""Kueue: node groups as ResourceFlavors, the teams' shares as queues, and one cohort in which idle GPUs are lent.

Objects are of v1beta2, the version in which Kueue 0.19 stores them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infra.spec.cluster_names import KUEUE_API, priority_class
from infra.spec.manifest import Manifest, api_object, labels
from infra.spec.node_group import NodeGroup, NodeGroups
from infra.spec.node_labels import HOST_LABEL, LABEL_PREFIX, group_selector, network_layer_label
from infra.spec.release import ReleaseManifest
from infra.spec.settings.platform import Team
from infra.spec.settings.stack import StackSettings
from platform_charts.objects.access import RBAC
from platform_charts.objects.priorities import TRAINING
from platform_charts.objects.shares import RESOURCES, Amounts, GroupShares, divide, quantity

COHORT = LABEL_PREFIX

_PREEMPTION = {
    # A lender gets its GPUs back when it needs them, whatever the borrower's priority.
    "reclaimWithinCohort": "Any",
    # Among a team's own jobs the priority that the team gives them decides.
    "withinClusterQueue": "LowerPriority",
    # No job is preempted so that another one may borrow.
    "borrowWithinCohort": {"policy": "Never"},
}


_FUNGIBILITY = {
    # Another team's idle GPUs in a preferred group are paid for; the next group would start nodes.
    "whenCanBorrow": "MayStopSearch",
    # No job is preempted while another group has room.
    "whenCanPreempt": "TryNextFlavor",
}

AGGREGATED_ROLES = {"kueue-batch-admin-role": "batch-admin", "kueue-batch-user-role": "batch-user"}
"""ClusterRoles of Kueue's chart whose rules Kubernetes collects from others, by the label that it collects."""


def queueing(settings: StackSettings, release: ReleaseManifest, groups: NodeGroups) -> tuple[Manifest, ...]:
    """Aggregated roles, flavors, cohort, priorities and queues."""
    shares = _in_order_of_search(divide(settings, groups))
    return (
        *aggregated_roles(),
        *(_topology(layers, release) for layers in sorted({group.network_layers for group in groups.gpu} - {0})),
        *(_flavor(one.group, release) for one in shares),
        _cohort(shares, release),
        *_priorities(release),
        *(_cluster_queue(team, shares, release) for team in settings.teams),
        *(_local_queue(team, release) for team in settings.teams),
    )


def aggregated_roles() -> tuple[Manifest, ...]:
    """The chart's aggregated ClusterRoles as objects of the stack, which deletes them before the chart.

    Helm deletes the collected roles first. For each, Kubernetes' aggregation controller applies the collecting role again, also
    after Helm has deleted it, and Helm waits until its timeout for it to disappear. The objects have no labels of ours, because
    Helm recognizes its own by their labels.
    """
    return tuple(
        api_object(
            f"{RBAC}/v1",
            "ClusterRole",
            name,
            aggregationRule={"clusterRoleSelectors": [{"matchLabels": {f"rbac.kueue.x-k8s.io/{collected}": "true"}}]},
        )
        for name, collected in AGGREGATED_ROLES.items()
    )


def _in_order_of_search(shares: Sequence[GroupShares]) -> tuple[GroupShares, ...]:
    """The GPU groups in order of preference, and those without GPUs last, as Kueue goes through a queue's flavors.

    When a job is tried again, Kueue resumes a pod set's search after the flavor that its last search ended at, and fails if
    there is none. With the head group's flavor first, a head would fit it at once; the next attempt would try only the GPU
    flavors, and report their untolerated taints instead of what the job waits for (Kueue 0.19, flavorassigner.go,
    TriedFlavorIdx).
    """
    return tuple(sorted(shares, key=lambda one: (not one.has_gpus, one.group.preference)))


def _flavor(group: NodeGroup, release: ReleaseManifest) -> Manifest:
    """A node group. The flavor lists its taints and tolerates none of them: jobs bring their own tolerations.

    So a head, which tolerates the taint of the head nodes only, never takes up a GPU node, and a job runs on spot
    capacity only if it says so.
    """
    spec: dict[str, object] = {"nodeLabels": group_selector(group.name)}
    if group.taints:
        spec["nodeTaints"] = [taint.model_dump() for taint in group.taints]
    if group.network_layers:
        spec["topologyName"] = topology_name(group.network_layers)
    return _object("ResourceFlavor", group.name, release, spec=spec)


def topology_name(layers: int) -> str:
    """Name of Kueue's Topology of nodes with so many network layers."""
    return f"network-{layers}-layers"


def _topology(layers: int, release: ReleaseManifest) -> Manifest:
    """EC2's network, from its top layer down to a node."""
    keys = [*map(network_layer_label, range(1, layers + 1)), HOST_LABEL]
    spec = {"levels": [{"nodeLabel": key} for key in keys]}
    return _object("Topology", topology_name(layers), release, spec=spec)


def _cohort(shares: Sequence[GroupShares], release: ReleaseManifest) -> Manifest:
    """Where teams borrow from each other; what no team owns is the cohort's own quota, and is lent first."""
    flavors = [_quotas(one.group, one.unowned) for one in shares]
    return _object("Cohort", COHORT, release, spec={"resourceGroups": [_resource_group(flavors)]})


def _cluster_queue(team: Team, shares: Sequence[GroupShares], release: ReleaseManifest) -> Manifest:
    """A team's queue.

    BestEffortFIFO: a job that waits for a full group does not block a later job from an idle group.
    """
    flavors = [_quotas(one.group, one.owned[team.name], may_borrow=team.borrow or not one.has_gpus) for one in shares]
    spec = {
        "cohortName": COHORT,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team.name}},
        "queueingStrategy": "BestEffortFIFO",
        "flavorFungibility": _FUNGIBILITY,
        "preemption": _PREEMPTION,
        "resourceGroups": [_resource_group(flavors)],
    }
    return _object("ClusterQueue", team.name, release, team=team.name, spec=spec)


def _local_queue(team: Team, release: ReleaseManifest) -> Manifest:
    spec = {"clusterQueue": team.name}
    return _object("LocalQueue", team.name, release, team=team.name, namespace=team.name, spec=spec)


def _priorities(release: ReleaseManifest) -> tuple[Manifest, ...]:
    return tuple(
        _object(
            "WorkloadPriorityClass",
            priority_class(priority),
            release,
            value=value,
            description=f"Training jobs of {priority} priority",
        )
        for priority, value in TRAINING.items()
    )


def _resource_group(flavors: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """One group over all resources: a pod's cores, memory and GPUs come from the same nodes."""
    return {"coveredResources": list(RESOURCES), "flavors": list(flavors)}


def _quotas(group: NodeGroup, amounts: Amounts, *, may_borrow: bool = True) -> dict[str, object]:
    limit = {} if may_borrow else {"borrowingLimit": "0"}
    return {
        "name": group.name,
        "resources": [{"name": name, "nominalQuota": quantity(name, amounts[name]), **limit} for name in RESOURCES],
    }


def _object(
    kind: str,
    name: str,
    release: ReleaseManifest,
    *,
    team: str | None = None,
    namespace: str | None = None,
    **fields: Any,  # noqa: ANN401 - as `api_object` takes them
) -> Manifest:
    common = labels("queueing", version=release.platform, team=team)
    return api_object(KUEUE_API, kind, name, namespace=namespace, labels=common, **fields)
