"""Roles of people who open the stack's web UIs; `infra.spec.uis` says why they are cut by namespace."""

from __future__ import annotations

from collections.abc import Sequence

from infra.spec.cluster_names import MLFLOW_NAMESPACE, MONITORING_NAMESPACE
from infra.spec.manifest import Manifest, labels
from infra.spec.release import ReleaseManifest
from infra.spec.settings.stack import StackSettings
from infra.spec.uis import (
    FORWARD,
    GRAFANA_LOGIN,
    MLFLOW_LOGIN,
    MLFLOW_ROLE,
    MONITORING_ROLE,
    VIEWER_ROLE,
    Permission,
)
from platform_charts.objects.access import Rule, role, rule, team_subject


def ui_access(settings: StackSettings, release: ReleaseManifest) -> tuple[Manifest, ...]:
    """Members of every team forward MLflow's port and read their team's login; the role for monitoring is bound to nobody.

    By a setting they also forward Grafana's port.
    """
    common = labels("access", version=release.platform)
    members = [team_subject(team) for team in settings.teams]
    monitoring_role, _ = role(
        MONITORING_ROLE, MONITORING_NAMESPACE, _rules((*FORWARD, *GRAFANA_LOGIN.permissions)), labels=common
    )
    logins = (
        manifest
        for team in settings.teams
        for manifest in role(
            MLFLOW_LOGIN.role,
            team.name,
            _rules(MLFLOW_LOGIN.permissions),
            team_subject(team),
            labels=labels("access", version=release.platform, team=team.name),
        )
    )
    forwards = role(MLFLOW_ROLE, MLFLOW_NAMESPACE, _rules(FORWARD), *members, labels=common) if members else ()
    is_open = members and settings.monitoring.open_to_teams
    viewers = role(VIEWER_ROLE, MONITORING_NAMESPACE, _rules(FORWARD), *members, labels=common) if is_open else ()
    return (monitoring_role, *viewers, *forwards, *logins)


def _rules(permissions: Sequence[Permission]) -> tuple[Rule, ...]:
    return tuple(rule("", (one.resource,), one.verbs, only=one.names) for one in permissions)
