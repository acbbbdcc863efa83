"""Runs `platform_charts.images.job_sizer` on the cluster: elastic jobs grow into idle quota, and return it."""

from __future__ import annotations

from infra.spec.cluster_names import JOB_SIZER_ACCOUNT
from infra.spec.manifest import Manifest
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings
from platform_charts.objects.access import rule
from platform_charts.objects.watcher import watcher_objects

_TEAM_RULES = (
    # Admission policies keep it to the number of workers of elastic jobs.
    rule("ray.io", ("rayjobs",), ("list", "patch")),
    rule("ray.io", ("rayclusters",), ("get", "patch")),
    rule("kueue.x-k8s.io", ("workloads", "localqueues"), ("list",)),
    rule("", ("pods",), ("list",)),
)
"""What the program may do in the namespace of each team; nowhere else it writes anything."""

_QUOTA_RULES = (rule("kueue.x-k8s.io", ("clusterqueues", "cohorts", "resourceflavors"), ("list",)),)


def sizer_objects(settings: StackSettings, release: ReleaseManifest, *, registry: str) -> tuple[Manifest, ...]:
    """The program with what it may do; nothing without a team.

    Args:
        settings: the environment, whose teams' jobs are resized.
        release: the versions.
        registry: host of the stack's ECR and the prefix of its repositories.
    """
    if not settings.teams:
        return ()
    return watcher_objects(
        JOB_SIZER_ACCOUNT,
        [f"--namespace={team.name}" for team in settings.teams],
        release,
        registry=registry,
        rules=_QUOTA_RULES,
        teams=settings.teams,
        team_rules=_TEAM_RULES,
        is_single=True,  # two of them would take each other's steps
    )
