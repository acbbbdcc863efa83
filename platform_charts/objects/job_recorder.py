"""Runs `platform_charts.images.job_recorder` on the cluster: what became of a job's pods, beyond the pods."""

from __future__ import annotations

from infra.spec.cluster_names import MONITORING_NAMESPACE
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest, api_object, labels
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings
from platform_charts.container_resources import CONTAINERS
from platform_charts.objects.access import cluster_role, role, rule
from platform_charts.placement import SYSTEM_NODES

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
    common = labels(_NAME, version=release.platform)
    subject = {"kind": "ServiceAccount", "name": _NAME, "namespace": MONITORING_NAMESPACE}
    of_teams = (
        one
        for team in settings.teams
        for one in role(
            _NAME, team.name, _TEAM_RULES, subject, labels=labels(_NAME, version=release.platform, team=team.name)
        )
    )
    return (
        api_object("v1", "ServiceAccount", _NAME, namespace=MONITORING_NAMESPACE, labels=common),
        *cluster_role(_NAME, _NODE_RULES, (subject,), labels=common),
        *of_teams,
        api_object(
            "apps/v1",
            "Deployment",
            _NAME,
            namespace=MONITORING_NAMESPACE,
            labels=common,
            spec=_deployment(settings, release, registry=registry, common=common),
        ),
    )


def _deployment(
    settings: StackSettings, release: ReleaseManifest, *, registry: str, common: dict[str, str]
) -> Manifest:
    container = {
        "name": _NAME,
        "image": release.images["mlflow"].reference(registry),
        "command": ["python", "-m", "job_recorder"],
        "args": [f"--namespace={team.name}" for team in settings.teams],
        "resources": CONTAINERS[_NAME].manifest(),
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
    }
    pod = {
        "serviceAccountName": _NAME,
        "nodeSelector": dict(SYSTEM_NODES),
        "securityContext": dict(RESTRICTED_POD),
        "terminationGracePeriodSeconds": _GRACE_SECONDS,
        "containers": [container],
    }
    return {
        "replicas": 1,
        # Two of them would write the same records.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": {"app.kubernetes.io/name": _NAME}},
        "template": {"metadata": {"labels": dict(common)}, "spec": pod},
    }
