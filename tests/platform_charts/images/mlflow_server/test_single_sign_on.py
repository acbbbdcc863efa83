"""The real server behind the proxy of single sign-on."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from platform_charts.images.sso_proxy.sites import Site
from tests.engines.mlflow_server import MlflowServer
from tests.platform_charts.images.mlflow_server.platform import TEAMS, Platform
from tests.platform_charts.images.sso_proxy.load_balancer import (
    LoadBalancer,
    MemoryLogins,
    RunningProxy,
    proxy,
    served_keys,
)
from tests.training.cluster.uis.upstream import Reply, ask

VISION, SPEECH = TEAMS
BALANCER = LoadBalancer()
WORKSPACES = "/ajax-api/3.0/mlflow/workspaces"


def host(team: str) -> str:
    """The host name of a team's MLflow."""
    return f"mlflow-{team}.ml.example.com"


@pytest.fixture(scope="module")
def served(server: MlflowServer, services: Platform) -> Iterator[RunningProxy]:
    """The proxy; the first login of one team is outdated."""
    sites = [
        Site(host=host(team), title="MLflow", upstream=server.uri, groups=frozenset({f"ml-{team}"}), team=team)
        for team in TEAMS
    ]
    logins = MemoryLogins({VISION: [_login(VISION, services)], SPEECH: ["Basic eDp5", _login(SPEECH, services)]})
    with served_keys(BALANCER) as keys, proxy(sites, keys=keys, logins=logins) as running:
        yield running


def _login(team: str, services: Platform) -> str:
    password = services.credentials(team)["MLFLOW_TRACKING_PASSWORD"]
    return f"Basic {base64.b64encode(f'{team}:{password}'.encode()).decode()}"


def as_member(served: RunningProxy, path: str, *, of: str, at: str, data: bytes | None = None, **fields: str) -> Reply:
    """A request of a member of one team at the host name of another, or of the same one."""
    token = BALANCER.token([f"ml-{of}"])
    return ask(f"{served.url}{path}", data=data, Host=host(at), X_Amzn_Oidc_Data=token, **fields)


def test_a_member_sees_the_workspace_of_the_team_and_creates_an_experiment_in_a_browser(served: RunningProxy) -> None:
    assert "<title>MLflow</title>" in as_member(served, "/", of=VISION, at=VISION).body
    found = json.loads(as_member(served, WORKSPACES, of=VISION, at=VISION).body)
    assert [one["name"] for one in found["workspaces"]] == [VISION]
    made = json.dumps({"name": "made-behind-single-sign-on"}).encode()
    page = {"Origin": f"https://{host(VISION)}", "Content_Type": "application/json", "X_MLFLOW_WORKSPACE": VISION}
    path = "/ajax-api/2.0/mlflow/experiments/create"
    reply = as_member(served, path, of=VISION, at=VISION, data=made, **page)
    assert reply.status == 200, reply
    assert served.line_of(path)["person"] == "ada@example.com"
    search = "/ajax-api/2.0/mlflow/experiments/search?max_results=1"
    theirs = as_member(served, search, of=VISION, at=VISION, X_MLFLOW_WORKSPACE=SPEECH)
    assert json.loads(theirs.body).get("experiments", []) == []


def test_an_outdated_login_is_read_again_and_the_browser_is_not_asked_for_a_password(served: RunningProxy) -> None:
    refused = as_member(served, WORKSPACES, of=SPEECH, at=SPEECH)
    assert (refused.status, refused.body) == (502, "MLflow has refused the login of the team; reload the page\n")
    assert "WWW-Authenticate" not in refused.headers
    assert as_member(served, WORKSPACES, of=SPEECH, at=SPEECH).status == 200
