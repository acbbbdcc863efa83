"""A team's member opens the UI of a real pod with kubectl and the roles of the stack; the pod disappears, and another is found."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import pytest
import yaml

from infra.kube.api import KubernetesApi
from infra.kube.client import client_of
from infra.lifecycle.sandbox.layout import kubeconfig_in
from infra.lifecycle.sandbox.processes import free_ports
from infra.spec.manifest import Manifest, api_object
from infra.spec.names import team_group
from infra.spec.release import load_release
from infra.spec.settings import load_environment
from infra.spec.uis import SHARED_UIS
from platform_charts.objects.ui_access import ui_access
from tests.engines.real_nodes import Pods
from tests.training.cluster.team_cluster import target
from tests.training.cluster.uis.upstream import ask, log_in
from training.cluster.uis.connection import Lost, News, Opened, connected
from training.cluster.uis.gate import Gate
from training.cluster.uis.proxy import LocalProxy
from training.cluster.uis.shared import shared_ui
from training.cluster.uis.ui import Stack
from training.cluster.waiting import is_ready

_TEAM = "research"
_NAMESPACES = ("mlflow", "monitoring", _TEAM)
_SECONDS = 90
_SERVE = (
    "busybox mkdir /tmp/www && echo $HOSTNAME | busybox tee /tmp/www/health >/tmp/www/index.html"
    " && exec busybox httpd -f -p 5000 -h /tmp/www"
)


class Member(NamedTuple):
    """A member of a team, and the nodes."""

    stack: Stack
    pods: Pods


@pytest.fixture
def member(real_nodes: Pods, tmp_path: Path) -> Iterator[Member]:
    """The roles of dev with a team's login on a cluster with real nodes."""
    settings = load_environment("dev")
    roles = [one for one in ui_access(settings, load_release()) if one["metadata"]["namespace"] in _NAMESPACES]
    login = {"MLFLOW_TRACKING_USERNAME": _TEAM, "MLFLOW_TRACKING_PASSWORD": "secret"}
    secret = {**api_object("v1", "Secret", "mlflow-credentials", namespace=_TEAM), "stringData": login}
    namespaces = [api_object("v1", "Namespace", name) for name in _NAMESPACES]
    administrator = kubeconfig_in(real_nodes.folder)
    document = yaml.safe_load(administrator.read_text())
    document["users"][0]["user"] |= {"as": "somebody", "as-groups": [team_group(_TEAM)]}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(document))
    client = client_of(administrator)
    client.set_default_header("Impersonate-User", "somebody")
    client.set_default_header("Impersonate-Group", team_group(_TEAM))
    stack = Stack(env="dev", target=target(), api=KubernetesApi(client), kubeconfig=kubeconfig, environment={})
    with real_nodes.applied(*namespaces, *roles, secret):
        account = api_object("v1", "ServiceAccount", "default", namespace="mlflow")
        real_nodes.cluster.await_(account, lambda _: True, what="created", seconds=_SECONDS)
        yield Member(stack, real_nodes)


def _serving(pods: Pods, name: str) -> Manifest:
    """A pod in the place of MLflow's server, which runs."""
    made = pods.pod(name, _SERVE, node="system", volumes=[{"name": "tmp", "emptyDir": {}}])
    made["metadata"] |= {"namespace": "mlflow", "labels": dict(SHARED_UIS["mlflow"].labels)}
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "tmp", "mountPath": "/tmp"}]
    pods.cluster.apply(made)
    return pods.cluster.await_(made, is_ready, what="ready", seconds=_SECONDS)


def test_a_members_ui_survives_the_end_of_its_pod(member: Member) -> None:
    first = _serving(member.pods, "first")
    gate, news = Gate(port=free_ports(1)[0], start="/", key="key"), SimpleQueue[News]()
    ui = shared_ui("mlflow", member.stack, team=None)
    with LocalProxy(gate, title=ui.title) as proxy, connected(ui, proxy, news.put):
        assert news.get(timeout=_SECONDS) == Opened()
        cookie, _ = log_in(gate.url)
        page = f"http://localhost:{gate.port}/"
        assert ask(page, Cookie=cookie).body == "first\n"
        member.pods.remove(first)
        assert isinstance(news.get(timeout=_SECONDS), Lost)
        assert ask(page, Cookie=cookie).status == 503
        second = _serving(member.pods, "second")
        deadline = time.monotonic() + _SECONDS
        while news.get(timeout=_SECONDS) != Opened():
            assert time.monotonic() < deadline
        assert ask(page, Cookie=cookie).body == "second\n"
    member.pods.remove(second)
