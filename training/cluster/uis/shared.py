"""The UIs that a stack has once: MLflow, Grafana, Prometheus, Alertmanager."""

from __future__ import annotations

import base64
from urllib.parse import quote

from infra.spec.cluster_names import MONITORING_NAMESPACE
from infra.spec.errors import RefusedError
from infra.spec.manifest import api_object
from infra.spec.uis import FORWARD, MONITORING_ROLE, SHARED_UIS, Login, SharedUi
from training.cluster.context import ClusterContext
from training.cluster.uis.permissions import missing, require
from training.cluster.uis.ui import Stack, Ui, ready_pod
from training.errors import SettingsError

_BIND = (
    f"an administrator of the cluster binds it: kubectl --namespace {MONITORING_NAMESPACE} create rolebinding "
    f"{MONITORING_ROLE} --role {MONITORING_ROLE} --user … or --group …"
)
_OPEN = f"{_BIND}; monitoring.open_to_teams in the environment's file makes members of teams viewers of Grafana"


def shared_ui(name: str, stack: Stack, *, team: str | None) -> Ui:
    """The UI of that name, for callers who may open it.

    Args:
        name: a key of `SHARED_UIS`.
        stack: the stack.
        team: whose login to take, where each team has one; None takes that of the only team that the caller may.

    Raises:
        RefusedError: a permission is missing, or the UI does not run.
        SettingsError: the team is unknown, or the caller may take the logins of several.
    """
    found = SHARED_UIS[name]
    if not found.is_per_team:
        remedy = _OPEN if found.viewer_role else _BIND
        return _ui(found, stack, title=found.title, login_namespace=found.namespace, remedy=remedy)
    context = _context_with_login(found, stack, team=team)
    title, remedy = f"{found.title} of team {context.team.name}", _join(context.team.name, stack)
    start = f"/#/?workspace={quote(context.team.name)}"
    return _ui(found, stack, title=title, login_namespace=context.team.namespace, remedy=remedy, start=start)


def _ui(found: SharedUi, stack: Stack, *, title: str, login_namespace: str, remedy: str, start: str = "/") -> Ui:
    login, is_viewer = found.login, False
    require(stack.api, FORWARD, namespace=found.namespace, role=found.role, title=title, remedy=remedy)
    if login is not None and found.viewer_role is not None:
        is_viewer = bool(missing(stack.api, login.permissions, namespace=login_namespace))
    elif login is not None:
        require(stack.api, login.permissions, namespace=login_namespace, role=login.role, title=title, remedy=remedy)

    def authorization() -> str | None:
        """None for a viewer, whose local port is for one browser only all the same."""
        return None if login is None or is_viewer else _basic(login, stack, namespace=login_namespace)

    up = f"bring the stack up: make up ENV={stack.env}"
    return Ui(
        title=f"{title} as viewer" if is_viewer else title,
        kubectl=stack.kubectl(found.namespace),
        port=found.port,
        health=found.health,
        start=start,
        find_pod=lambda: ready_pod(
            stack.api, namespace=found.namespace, labels=found.labels, title=f"{found.title} of {stack.env}", remedy=up
        ),
        find_authorization=None if login is None else authorization,
    )


def _context_with_login(found: SharedUi, stack: Stack, *, team: str | None) -> ClusterContext:
    contexts, login = stack.contexts(team), found.login
    assert login is not None, "a UI with teams has a login for each"
    if len(contexts) == 1:
        return contexts[0]
    allowed = [one for one in contexts if not missing(stack.api, login.permissions, namespace=one.team.namespace)]
    if len(allowed) == 1:
        return allowed[0]
    names = ", ".join(one.team.name for one in allowed or contexts)
    if allowed:
        raise SettingsError(
            f"you may open {found.title} for {len(allowed)} teams: {names}", remedy="choose one with TEAM=… (--team)"
        )
    raise RefusedError(
        f"{found.title} needs a team's login, the Secret {login.secret}, which the role {login.role} of the team's namespace "
        f"grants; you have it for none of the teams {names}",
        remedy=_join("…", stack),
    )


def _join(team: str, stack: Stack) -> str:
    return (
        f"members of the team have the role: add yours to `roles` of team {team} in infra/environments/{stack.env}.yaml"
    )


def _basic(login: Login, stack: Stack, *, namespace: str) -> str:
    """The header of basic authentication (RFC 7617, section 2)."""
    secret = stack.api.read(api_object("v1", "Secret", login.secret, namespace=namespace))
    data = (secret or {}).get("data") or {}
    if login.user not in data or login.password not in data:
        raise RefusedError(
            f"the Secret {namespace}/{login.secret} with the login does not exist, or lacks {login.user} or {login.password}",
            remedy=f"bring the stack up, which creates it: make up ENV={stack.env}",
        )
    user, password = (base64.b64decode(data[key]) for key in (login.user, login.password))
    return f"Basic {base64.b64encode(user + b':' + password).decode()}"
