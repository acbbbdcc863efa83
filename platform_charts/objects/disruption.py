"""PodDisruptionBudgets: a drain, the update of a node group and the autoscaler wait for running jobs instead of ending them."""

from __future__ import annotations

from infra.spec.cluster_names import NO_EVICTION
from infra.spec.manifest import Manifest, api_object, labels
from infra.spec.release import ReleaseManifest
from infra.spec.settings.platform import Team
from infra.spec.settings.stack import StackSettings

_NAME = "running-jobs"

_MORE_THAN_ANY = 2**31 - 1
"""Largest value of the field, an int32."""


def disruption_budgets(settings: StackSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """One budget per team that refuses the eviction of every pod of a running job.

    A budget limits requests to the Eviction API only. Operators, Kueue and `make stop` delete pods, and are not affected.

    * `minAvailable` is a number, because `maxUnavailable` and percentages need the scale of the pods' owner, and RayClusters
      have no scale subresource: the budget's status would fail to sync (Kubernetes 1.35, disruption.go, getExpectedScale).
    * Pods that have ended, and pods that have not started, are evicted without regard to budgets (eviction.go, canIgnorePDB).
      `AlwaysAllow` does the same for running pods that are not ready, so a broken pod does not hold up a drain for ever.
    * A pod in two budgets cannot be evicted at all (eviction.go, Create), so there is one budget for all jobs of a namespace.
    """
    return tuple(_budget(team, release) for team in settings.teams)


def _budget(team: Team, release: ReleaseManifest) -> Manifest:
    return api_object(
        "policy/v1",
        "PodDisruptionBudget",
        _NAME,
        namespace=team.name,
        labels=labels("disruption", version=release.platform, team=team.name),
        spec={
            "minAvailable": _MORE_THAN_ANY,
            "selector": {"matchLabels": dict(NO_EVICTION)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    )
