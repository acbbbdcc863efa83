"""A web UI as `open` reaches it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from infra.spec.errors import RefusedError
from platform_charts.jobs.request import Target
from training.cluster.context import ClusterContext, team_named
from training.cluster.kubectl import Kubectl, kubectl_for
from training.cluster.objects import POD
from training.cluster.waiting import is_ready, waiting_reason

if TYPE_CHECKING:
    from infra.kube.api import KubernetesApi


def _never() -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Ui:
    """A web UI in a pod of a cluster.

    Attributes:
        title: what it is, for messages, e.g. `MLflow of team research`.
        kubectl: kubectl in its namespace.
        port: port of its pods, and the usual local port.
        health: path that answers without a login.
        start: page to begin with.
        find_pod: the pod to connect to now; raises PlatformError if there is none.
        find_authorization: value of the header Authorization that logs in now, or None for a caller who looks without a login;
            None itself for a UI that has no login.
        is_over: whether it has ended for good.
    """

    title: str
    kubectl: Kubectl
    port: int
    health: str
    start: str = "/"
    find_pod: Callable[[], str]
    find_authorization: Callable[[], str | None] | None = None
    is_over: Callable[[], bool] = _never


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A stack and the caller's connection to its cluster.

    Attributes:
        env: name of the environment.
        target: its outputs, and this checkout's release.
        api: the API server.
        kubeconfig: the caller's; None for that of the environment.
        environment: the environment variables.
    """

    env: str
    target: Target
    api: KubernetesApi
    kubeconfig: Path | None
    environment: Mapping[str, str]

    def kubectl(self, namespace: str) -> Kubectl:
        """Kubectl in a namespace; raises like `kubectl_for`."""
        return kubectl_for(
            self.target.outputs, namespace=namespace, kubeconfig=self.kubeconfig, environment=self.environment
        )

    def contexts(self, team: str | None) -> tuple[ClusterContext, ...]:
        """The stack with the named team, else with each.

        Raises:
            SettingsError: the team is unknown, or there is none.
        """
        outputs = self.target.outputs
        teams = outputs.teams if team is None and outputs.teams else [team_named(outputs, team)]
        return tuple(ClusterContext(env=self.env, target=self.target, team=one) for one in teams)


def ready_pod(api: KubernetesApi, *, namespace: str, labels: Mapping[str, str], title: str, remedy: str) -> str:
    """The first ready pod with these labels, in order of their names.

    Args:
        api: the API server.
        namespace: of the pods.
        labels: of the pods.
        title: what runs there, for the message.
        remedy: what to do where it does not run.

    Raises:
        RefusedError: there is none.
    """
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    pods = [one for one in api.items(*POD, namespace=namespace, labels=selector) if not one["metadata"].get(_DELETED)]
    ready = sorted(str(one["metadata"]["name"]) for one in pods if is_ready(one))
    if ready:
        return ready[0]
    state = (
        f"is not ready: {waiting_reason(pods, ())}" if pods else f"does not run: namespace {namespace} has no pod of it"
    )
    raise RefusedError(f"{title} {state}", remedy=remedy)


_DELETED = "deletionTimestamp"
