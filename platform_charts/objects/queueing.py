"""Kueue: the node groups as flavours, the teams' shares as queues, and one cohort in which idle GPUs are lent.

Objects are of v1beta2, the version in which Kueue 0.19 stores them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infra.spec.catalog import Catalog
from infra.spec.cluster_names import KUEUE_API
from infra.spec.manifest import Manifest, api_object, labels
from infra.spec.outputs import LABEL_PREFIX
from infra.spec.release import ReleaseManifest
from infra.spec.settings.platform import Team
from infra.spec.settings.stack import StackSettings
from platform_charts.objects.priorities import TRAINING, training_class
from platform_charts.objects.shares import GPU, RESOURCES, Amounts, Group, groups_of, quantity

COHORT = LABEL_PREFIX

_PREEMPTION = {
    # Who lent its GPUs gets them back whenever it wants them, whatever the borrower's priority.
    "reclaimWithinCohort": "Any",
    # Among its own jobs a team says itself what goes first.
    "withinClusterQueue": "LowerPriority",
    # Nobody is preempted for the sake of a loan.
    "borrowWithinCohort": {"policy": "Never"},
}


def queueing(settings: StackSettings, release: ReleaseManifest, catalog: Catalog) -> tuple[Manifest, ...]:
    """Flavours, cohort, priorities and queues.

    Raises:
        SettingsError: see `platform_charts.objects.shares.groups_of`.
    """
    groups = _in_order_of_search(groups_of(settings, catalog))
    return (
        *(_flavor(group, release) for group in groups),
        _cohort(groups, release),
        *_priorities(release),
        *(_cluster_queue(team, groups, release) for team in settings.teams),
        *(_local_queue(team, release) for team in settings.teams),
    )


def _in_order_of_search(groups: Sequence[Group]) -> tuple[Group, ...]:
    """The groups without GPUs last, as Kueue goes through a queue's flavours.

    A pod set whose search ends before the last flavour goes on from there when the job is tried again, and fails: a head
    would find its own group first and then be told, in place of what the job waits for, that it does not tolerate the
    taints of the others (Kueue 0.19, flavorassigner.go, TriedFlavorIdx).
    """
    return tuple(sorted(groups, key=lambda group: group.total[GPU] == 0))


def _flavor(group: Group, release: ReleaseManifest) -> Manifest:
    """A node group. Its taints are named and not tolerated here: a job tolerates them itself.

    So a head, which asks for no GPU and tolerates none, never takes up a GPU node, and a job runs on spot capacity
    because it said so.
    """
    spec: dict[str, object] = {"nodeLabels": dict(group.labels)}
    if group.taints:
        spec["nodeTaints"] = [taint.model_dump() for taint in group.taints]
    return _object("ResourceFlavor", group.name, release, spec=spec)


def _cohort(groups: Sequence[Group], release: ReleaseManifest) -> Manifest:
    """Everybody who may borrow does so here; what no team owns is the cohort's own, and is lent first."""
    flavors = [_quotas(group, group.unowned) for group in groups]
    return _object("Cohort", COHORT, release, spec={"resourceGroups": [_resource_group(flavors)]})


def _cluster_queue(team: Team, groups: Sequence[Group], release: ReleaseManifest) -> Manifest:
    """A team's queue.

    BestEffortFIFO: a job that waits for a full group does not keep a later one from a group that is idle.
    """
    flavors = [_quotas(group, group.owned[team.name], is_lent=team.borrow or group.total[GPU] == 0) for group in groups]
    spec = {
        "cohortName": COHORT,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team.name}},
        "queueingStrategy": "BestEffortFIFO",
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
            training_class(priority),
            release,
            value=value,
            description=f"Training jobs of {priority} priority",
        )
        for priority, value in TRAINING.items()
    )


def _resource_group(flavors: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """One group over all resources: a pod's cores, memory and GPUs come from the same nodes."""
    return {"coveredResources": list(RESOURCES), "flavors": list(flavors)}


def _quotas(group: Group, amounts: Amounts, *, is_lent: bool = True) -> dict[str, object]:
    limit = {} if is_lent else {"borrowingLimit": "0"}
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
    marks = labels("queueing", version=release.platform, team=team)
    return api_object(KUEUE_API, kind, name, namespace=namespace, labels=marks, **fields)
