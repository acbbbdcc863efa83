"""The web UIs of a stack: where each runs, and the permissions with which a person opens it.

A UI is opened by a port forward with the caller's own permissions. RBAC authorizes that by namespace or by the pod's name, not by
labels, and the names of a Deployment's pods change. So what a role lets somebody reach is a namespace: that of MLflow runs
nothing but MLflow, which asks for a team's password, and every team may forward ports there. Grafana, Prometheus and Alertmanager
share a namespace, know no teams, and show the metrics of all of them: the role for them is bound to nobody, and administrators
bind it. By a setting, teams may look at Grafana's dashboards only; an admission policy keeps them off the other two.

The proxy of the API server can be limited to one Service by name (`services/proxy`), but the API server removes the header
Authorization from a request that it has authenticated, so neither MLflow nor Grafana would get a login through it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.spec.cluster_names import MLFLOW_CREDENTIALS, MLFLOW_NAMESPACE, MONITORING_NAMESPACE

RAY = "ray"
"""Ray's dashboard, which every job and session has in its head; the roles of its team apply."""


@dataclass(frozen=True, kw_only=True)
class Permission:
    """What a role grants in a namespace.

    Attributes:
        resource: resource of the core API group with its subresource, e.g. `pods/portforward`.
        verbs: verbs of the API.
        names: the objects' names; empty for all.
    """

    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()


FORWARD: tuple[Permission, ...] = (
    Permission(resource="pods", verbs=("get", "list")),
    # `get` is what a WebSocket asks for, and `create` what the API server checks as well since Kubernetes 1.35.
    Permission(resource="pods/portforward", verbs=("get", "create")),
)
"""Permissions to forward a port of any pod in a namespace."""


@dataclass(frozen=True, kw_only=True)
class Login:
    """The Secret with a UI's user and password.

    Attributes:
        secret: its name.
        user: key of the user.
        password: key of the password.
        role: name of the Role in the Secret's namespace that may read it.
    """

    secret: str
    user: str
    password: str
    role: str

    @property
    def permissions(self) -> tuple[Permission, ...]:
        """Permissions to read it."""
        return (Permission(resource="secrets", verbs=("get",), names=(self.secret,)),)


@dataclass(frozen=True, kw_only=True)
class SharedUi:
    """A UI that the stack has once.

    Attributes:
        title: its name in messages.
        namespace: namespace of its pods.
        labels: labels of its pods.
        port: port of its pods, and the usual local port.
        health: path that answers without a login.
        role: name of the Role in its namespace that may forward its port.
        login: its login; None if it has none.
        is_per_team: whether each team has a login of its own, in the team's namespace.
        viewer_role: name of the Role in its namespace for those who may look without the login; None if nobody may.
    """

    title: str
    namespace: str
    labels: Mapping[str, str]
    port: int
    health: str
    role: str
    login: Login | None = None
    is_per_team: bool = False
    viewer_role: str | None = None


MLFLOW_ROLE = "mlflow-ui"
MONITORING_ROLE = "monitoring-ui"
VIEWER_ROLE = "grafana-viewer"
"""Role of members of teams, where `monitoring.open_to_teams` is set; an admission policy limits it to Grafana's pods."""

GRAFANA = "kube-prometheus-stack-grafana"
"""Name that the chart gives to Grafana's Deployment, Service and Secret."""

GRAFANA_URI = f"http://{GRAFANA}.{MONITORING_NAMESPACE}.svc:80"
"""Grafana inside the cluster."""

MLFLOW_LOGIN = Login(
    secret=MLFLOW_CREDENTIALS,
    user="MLFLOW_TRACKING_USERNAME",
    password="MLFLOW_TRACKING_PASSWORD",  # noqa: S106 - a key
    role="mlflow-login",
)
"""A team's account, which each of the team's jobs has in its environment."""

GRAFANA_LOGIN = Login(
    secret=GRAFANA,
    user="admin-user",
    password="admin-password",  # noqa: S106 - a key
    role=MONITORING_ROLE,
)
"""The administrator's account, which the chart generates."""


def _monitoring(
    title: str, name: str, *, port: int, health: str, login: Login | None = None, viewer_role: str | None = None
) -> SharedUi:
    return SharedUi(
        title=title,
        namespace=MONITORING_NAMESPACE,
        labels={"app.kubernetes.io/name": name},
        port=port,
        health=health,
        role=MONITORING_ROLE,
        login=login,
        viewer_role=viewer_role,
    )


SHARED_UIS: Mapping[str, SharedUi] = {
    "mlflow": SharedUi(
        title="MLflow",
        namespace=MLFLOW_NAMESPACE,
        labels={"app.kubernetes.io/name": "mlflow"},
        port=5000,
        health="/health",
        role=MLFLOW_ROLE,
        login=MLFLOW_LOGIN,
        is_per_team=True,
    ),
    "grafana": _monitoring(
        "Grafana", "grafana", port=3000, health="/api/health", login=GRAFANA_LOGIN, viewer_role=VIEWER_ROLE
    ),
    "prometheus": _monitoring("Prometheus", "prometheus", port=9090, health="/-/healthy"),
    "alertmanager": _monitoring("Alertmanager", "alertmanager", port=9093, health="/-/healthy"),
}
"""The shared UIs by name."""

UI_NAMES = (*SHARED_UIS, RAY)
"""The names of all UIs."""
