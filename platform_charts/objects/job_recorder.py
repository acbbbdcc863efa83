"""Runs `platform_charts.images.job_recorder` on the cluster: what became of a job's pods, beyond the pods."""

from __future__ import annotations

from infra.spec.manifest import Manifest
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings
from platform_charts.objects.access import rule
from platform_charts.objects.watcher import watcher_objects

_NAME = "job-recorder"

_SEEN = ("list", "watch")

_TEAM_RULES = (
    rule("ray.io", ("rayjobs", "rayclusters"), _SEEN),
    rule("kueue.x-k8s.io", ("workloads",), _SEEN),
    rule("", ("pods", "events"), _SEEN),
    # RBAC cannot tell a record from another ConfigMap: a label selects what is listed, the name what is written.
    rule("", ("configmaps",), ("list", "create", "patch", "delete")),
)
"""What the program may do in the namespace of each team; nowhere else it writes anything."""

_NODE_RULES = (rule("", ("nodes",), ("get",)),)

_GRACE_SECONDS = 20
"""Time to write the records that have changed."""


def recorder_objects(settings: StackSettings, release: ReleaseManifest, *, registry: str) -> tuple[Manifest, ...]:
    """The program with what it may do; nothing without a team.

    Args:
        settings: the environment, whose teams' jobs are recorded.
        release: the versions.
        registry: host of the stack's ECR and the prefix of its repositories.
    """
    if not settings.teams:
        return ()
    return watcher_objects(
        _NAME,
        [f"--namespace={team.name}" for team in settings.teams],
        release,
        registry=registry,
        rules=_NODE_RULES,
        teams=settings.teams,
        team_rules=_TEAM_RULES,
        grace_seconds=_GRACE_SECONDS,
        is_single=True,  # two of them would write the same records
    )
