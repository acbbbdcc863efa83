"""The proxy between a load balancer and real servers: who gets where, and what the UI sees of a request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from platform_charts.images.sso_proxy.sites import Site
from tests.engines.ports import free_port
from tests.platform_charts.images.sso_proxy.load_balancer import (
    SIGNER,
    LoadBalancer,
    MemoryLogins,
    RunningProxy,
    proxy,
    served_keys,
)
from tests.training.cluster.uis.upstream import Reply, ask, upstream

MLFLOW, GRAFANA = "mlflow-research.ml.example.com", "grafana.ml.example.com"
LOGIN = "Basic cmVzZWFyY2g6c2VjcmV0"
BALANCER = LoadBalancer()


class Desk(NamedTuple):
    """A browser's view of the proxy."""

    running: RunningProxy

    def ask(
        self, path: str = "/", *, host: str = MLFLOW, token: str | None = None, data: bytes | None = None, **fields: str
    ) -> Reply:
        """A request that the load balancer passes on, of somebody in ml-research unless a token is given."""
        token = BALANCER.token() if token is None else token
        signed = {"X_Amzn_Oidc_Data": token} if token else {}
        return ask(f"{self.running.url}{path}", data=data, Host=host, **signed, **fields)

    def problems(self) -> list[str]:
        """What the log says went wrong."""
        return [json.loads(line).get("problem", "") for line in self.running.said]


def site(host: str, port: int, *groups: str, team: str | None = None) -> Site:
    """A site whose upstream is a port of this machine."""
    return Site(
        host=host,
        title=host.partition(".")[0],
        upstream=f"http://127.0.0.1:{port}",
        groups=frozenset(groups),
        team=team,
    )


@contextmanager
def desk_at(*sites: Site, logins: dict[str, list[str]] | None = None, keys: str | None = None) -> Iterator[Desk]:
    """The proxy with these sites."""
    with served_keys(BALANCER) as served:
        found = MemoryLogins(logins or {"research": [LOGIN]})
        with proxy(sites, keys=keys or served, logins=found) as running:
            yield Desk(running)


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    """MLflow of one team and Grafana of two, in front of servers that say what they were asked."""
    with upstream("mlflow") as mlflow, upstream("grafana") as grafana:
        sites = (
            site(MLFLOW, mlflow.port, "ml-research", team="research"),
            site(GRAFANA, grafana.port, "ml-research", "ml-platform"),
        )
        with desk_at(*sites) as found:
            yield found


def test_a_member_uses_mlflow_as_the_team_and_grafana_without_a_login(desk: Desk) -> None:
    seen = desk.ask("/ajax-api/runs?x=%2F&y=a+b").seen
    assert (seen["server"], seen["authorization"]) == ("mlflow", LOGIN)
    seen = desk.ask(host=f"{GRAFANA}:443").seen
    assert seen["server"] == "grafana"
    assert "authorization" not in seen


def test_the_ui_gets_neither_the_token_nor_cookies_nor_a_login_of_the_browsers(desk: Desk) -> None:
    fields = {
        "Authorization": "Basic YWRtaW46YWRtaW4=",
        "Cookie": f"AWSELBAuthSessionCookie-0={'x' * 16_000}; grafana_session=1",
        "X_WEBAUTH_USER": "admin",
        "X_Amzn_Oidc_Accesstoken": "secret",
        "X_Amzn_Oidc_Identity": "4711",
        "X_Forwarded_For": "203.0.113.9",
        "X_MLFLOW_WORKSPACE": "research",
    }
    for host, login in ((MLFLOW, LOGIN), (GRAFANA, None)):
        seen = desk.ask(host=host, data=None, **fields).seen
        assert seen.get("authorization") == login
        assert seen["host"].startswith("127.0.0.1:")
        assert seen["x-mlflow-workspace"] == "research"
        unwanted = ("cookie", "x-webauth-user", "x-forwarded-for", "origin")
        assert not [name for name in seen if name in unwanted or name.startswith("x-amzn")]


def test_somebody_with_hundreds_of_groups_is_let_in(desk: Desk) -> None:
    groups = [f"group-{number:04}" for number in range(700)]
    token = BALANCER.token([*groups, "ml-research"])
    assert len(token) > 11_000
    assert desk.ask(token=token).status == 200


def test_bodies_pass_in_both_directions_and_who_changes_something_is_logged(desk: Desk) -> None:
    body = "x" * 1_000_000
    reply = desk.ask("/upload", data=body.encode(), Origin=f"https://{MLFLOW}")
    assert reply.seen["body"] == body
    line = desk.running.line_of("/upload")
    assert line == {"person": "ada@example.com", "host": MLFLOW, "method": "POST", "path": "/upload", "status": 200}


def test_a_person_reaches_the_uis_of_their_groups_only(desk: Desk) -> None:
    for groups, host, status in (
        (["ml-platform"], MLFLOW, 403),
        (["ml-platform"], GRAFANA, 200),
        ([], GRAFANA, 403),
        (["ml-research"], "mlflow-platform.ml.example.com", 421),
        (["ml-research"], "127.0.0.1", 421),
    ):
        reply = desk.ask(host=host, token=BALANCER.token(groups))
        assert reply.status == status, (groups, host)
        if status == 403:
            refusal = f"ada@example.com may not use {host.partition('.')[0]}, which is for members of"
            assert reply.body.startswith(refusal)


def test_without_a_token_of_our_load_balancer_nothing_is_passed_on(desk: Desk) -> None:
    tokens = ["", BALANCER.token(signer="arn:aws:…"), BALANCER.token(kid="0" * 36)]
    for token in tokens:
        reply = desk.ask(token=token)
        assert reply.status == 401
        assert "reload the page to sign in again" in reply.body
        assert "WWW-Authenticate" not in reply.headers
    assert desk.problems()[-len(tokens) :] == [
        "the token is refused: the request has 0 of them",
        f"the token is refused: its signer is 'arn:aws:…', not {SIGNER}…",
        f"the token is refused: AWS knows no key {'0' * 36}",
    ]


def test_a_request_of_another_site_is_refused_and_health_needs_neither_a_host_nor_a_token(desk: Desk) -> None:
    reply = desk.ask(data=b"{}", Origin="https://evil.example")
    assert (reply.status, reply.body) == (403, "only pages of this host may send it\n")
    assert desk.ask("/.sso/health", host="10.16.1.7", token="").body == "ok\n"


def test_a_ui_that_does_not_answer_is_named() -> None:
    with desk_at(site(MLFLOW, free_port(), "ml-research", team="research")) as desk:
        reply = desk.ask()
        assert (reply.status, reply.body) == (502, "mlflow-research does not answer\n")
        assert "does not answer: ClientConnectorError" in desk.problems()[-1]


def test_while_aws_does_not_answer_nobody_is_let_in() -> None:
    with (
        upstream() as ui,
        desk_at(site(GRAFANA, ui.port, "ml-research"), keys=f"http://127.0.0.1:{free_port()}") as desk,
    ):
        reply = desk.ask(host=GRAFANA)
        assert reply.status == 503
        assert "cannot be fetched; try again" in reply.body
        assert "does not answer: ClientConnectorError" in desk.problems()[-1]
