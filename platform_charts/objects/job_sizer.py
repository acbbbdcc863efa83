"""Runs `platform_charts.images.job_sizer` on the cluster: elastic jobs grow into idle quota, and return it."""

from __future__ import annotations

from infra.spec.cluster_names import JOB_SIZER_ACCOUNT, MONITORING_NAMESPACE
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest, api_object, labels
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings
from platform_charts.container_resources import CONTAINERS
from platform_charts.objects.access import cluster_role, role, rule
from platform_charts.placement import SYSTEM_NODES

_NAME = JOB_SIZER_ACCOUNT

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
    common = labels(_NAME, version=release.platform)
    subject = {"kind": "ServiceAccount", "name": _NAME, "namespace": MONITORING_NAMESPACE}
    of_teams = (
        one
        for team in settings.teams
        for one in role(
            _NAME, team.name, _TEAM_RULES, subject, labels=labels(_NAME, version=release.platform, team=team.name)
        )
    )
    spec = _deployment(settings, release, registry=registry, common=common)
    return (
        api_object("v1", "ServiceAccount", _NAME, namespace=MONITORING_NAMESPACE, labels=common),
        *cluster_role(_NAME, _QUOTA_RULES, (subject,), labels=common),
        *of_teams,
        api_object("apps/v1", "Deployment", _NAME, namespace=MONITORING_NAMESPACE, labels=common, spec=spec),
    )


def _deployment(
    settings: StackSettings, release: ReleaseManifest, *, registry: str, common: dict[str, str]
) -> Manifest:
    container = {
        "name": _NAME,
        "image": release.images["mlflow"].reference(registry),
        "command": ["python", "-m", "job_sizer"],
        "args": [f"--namespace={team.name}" for team in settings.teams],
        "resources": CONTAINERS[_NAME].manifest(),
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
    }
    pod = {
        "serviceAccountName": _NAME,
        "nodeSelector": dict(SYSTEM_NODES),
        "securityContext": dict(RESTRICTED_POD),
        # A process without a handler for SIGTERM ignores it as the first one of a container, and has nothing to finish.
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    return {
        "replicas": 1,
        # Two of them would take each other's steps.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": {"app.kubernetes.io/name": _NAME}},
        "template": {"metadata": {"labels": dict(common)}, "spec": pod},
    }
