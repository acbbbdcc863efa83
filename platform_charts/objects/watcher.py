"""A program of the platform that watches the jobs of all teams: a Deployment of one pod in the namespace of monitoring, and its rights."""

from __future__ import annotations

from collections.abc import Sequence

from infra.spec.cluster_names import MONITORING_NAMESPACE
from infra.spec.manifest import RESTRICTED_CONTAINER, RESTRICTED_POD, Manifest, api_object, labels
from infra.spec.release import ReleaseManifest
from infra.spec.settings.platform import Team
from platform_charts.container_resources import CONTAINERS
from platform_charts.objects.access import Rule, cluster_role, role
from platform_charts.placement import SYSTEM_NODES

_NO_GRACE_SECONDS = 1
"""A process without a handler for SIGTERM ignores it as the first one of a container, and has nothing to finish."""


def watcher_objects(
    name: str,
    arguments: Sequence[str],
    release: ReleaseManifest,
    *,
    registry: str,
    rules: Sequence[Rule],
    teams: Sequence[Team] = (),
    team_rules: Sequence[Rule] = (),
    grace_seconds: int = _NO_GRACE_SECONDS,
    is_single: bool = False,
) -> tuple[Manifest, ...]:
    """The program with what it may do.

    Args:
        name: of its objects; with underscores, that of its package in the MLflow image.
        arguments: of the program.
        release: the versions.
        registry: host of the stack's ECR and the prefix of its repositories.
        rules: what it may do in the whole cluster.
        teams: those in whose namespaces it has `team_rules`.
        team_rules: what it may do there.
        grace_seconds: time that it gets to end.
        is_single: two of them at a time would disturb each other, so an update ends the old one first.
    """
    common = labels(name, version=release.platform)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": MONITORING_NAMESPACE}
    of_teams = (
        one
        for team in teams
        for one in role(
            name, team.name, team_rules, subject, labels=labels(name, version=release.platform, team=team.name)
        )
    )
    container = {
        "name": name,
        "image": release.images["mlflow"].reference(registry),
        "command": ["python", "-m", name.replace("-", "_")],
        "args": list(arguments),
        "resources": CONTAINERS[name].manifest(),
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
    }
    pod = {
        "serviceAccountName": name,
        "nodeSelector": dict(SYSTEM_NODES),
        "securityContext": dict(RESTRICTED_POD),
        "terminationGracePeriodSeconds": grace_seconds,
        "containers": [container],
    }
    spec = {
        "replicas": 1,
        **({"strategy": {"type": "Recreate"}} if is_single else {}),
        "selector": {"matchLabels": {"app.kubernetes.io/name": name}},
        "template": {"metadata": {"labels": dict(common)}, "spec": pod},
    }
    return (
        api_object("v1", "ServiceAccount", name, namespace=MONITORING_NAMESPACE, labels=common),
        *cluster_role(name, rules, (subject,), labels=common),
        *of_teams,
        api_object("apps/v1", "Deployment", name, namespace=MONITORING_NAMESPACE, labels=common, spec=spec),
    )
