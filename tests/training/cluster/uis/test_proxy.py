"""The local port of a UI: who may use it, and what passes through, to a real server; and what `open` refuses."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from infra.lifecycle.sandbox.processes import free_ports
from infra.spec.errors import RefusedError
from tests.training.cli.command import assert_refused
from tests.training.cluster.uis.upstream import Server, ask, log_in, upstream
from training.cluster.uis.gate import Gate
from training.cluster.uis.head import RequestHead
from training.cluster.uis.proxy import LocalProxy, Upstream

_KEY = "the-key-of-the-url"
_LOGIN = "Basic dGVhbTpzZWNyZXQ="


@pytest.fixture
def server() -> Iterator[Server]:
    with upstream() as found:
        yield found


@pytest.fixture
def gate() -> Gate:
    return Gate(port=free_ports(1)[0], start="/start", key=_KEY)


@pytest.fixture
def proxy(server: Server, gate: Gate) -> Iterator[LocalProxy]:
    with LocalProxy(gate, title="MLflow") as found:
        found.upstream = Upstream(server.port, _LOGIN)
        yield found


@pytest.mark.usefixtures("proxy")
def test_a_browser_that_opens_the_url_is_logged_in_and_gets_no_password(gate: Gate) -> None:
    cookie, page = log_in(gate.url)
    assert page == "/start"
    reply = ask(f"http://localhost:{gate.port}{page}", Cookie=f"a=1; {cookie}; b=2", Authorization="Basic mine")
    assert reply.seen["authorization"] == _LOGIN
    assert reply.seen["cookie"] == "a=1; b=2", "the key is for the port only"
    assert reply.seen["host"] == f"localhost:{gate.port}", "the UI checks it"
    assert _LOGIN not in str(reply.headers) + cookie + gate.url
    body, origin = b"x" * 1_000_000, f"http://localhost:{gate.port}"
    assert ask(f"{origin}/save", data=body, Cookie=cookie, Origin=origin).seen["body"] == body.decode()


@pytest.mark.usefixtures("proxy")
def test_nobody_else_reaches_the_ui(gate: Gate) -> None:
    good = {"Cookie": f"open-{gate.port}={_KEY}"}
    for headers, why in (
        ({}, "no cookie"),
        ({"Cookie": f"open-{gate.port}=guessed"}, "a wrong key"),
        ({"Cookie": f"open-1={_KEY}"}, "the key of another port"),
        ({**good, "Host": f"evil.example:{gate.port}"}, "DNS rebinding"),
        ({**good, "Origin": "https://evil.example"}, "another site's page"),
        ({**good, "Origin": "null"}, "a page without an origin"),
        ({**good, "Origin": "http://localhost:1"}, "a page of another port"),
    ):
        reply = ask(f"http://localhost:{gate.port}/", data=None, **headers)
        assert (reply.status, "authorization" in reply.body) == (403, False), why
    reply = ask(f"http://localhost:{gate.port}/.open/guessed")
    assert (reply.status, "Set-Cookie" in reply.headers) == (403, False)


def test_a_ui_without_a_login_is_open_to_tools_but_not_to_other_sites(server: Server) -> None:
    (port,) = free_ports(1)
    with LocalProxy(Gate(port=port, start="/", key=None), title="Prometheus") as proxy:
        proxy.upstream = Upstream(server.port, None)
        assert ask(f"http://127.0.0.1:{port}/api", Authorization="mine").seen["authorization"] == "mine"
        assert ask(f"http://127.0.0.1:{port}/api", Origin="https://evil.example").status == 403


def test_a_websocket_passes_in_both_directions_with_the_login(proxy: LocalProxy, gate: Gate) -> None:
    cookie, _ = log_in(gate.url)
    fields = (f"Host: localhost:{gate.port}", f"Cookie: {cookie}", "Connection: keep-alive, Upgrade", "Upgrade: echo")
    with socket.create_connection(("127.0.0.1", gate.port)) as client, client.makefile("rb") as answer:
        client.sendall("\r\n".join(("GET /live HTTP/1.1", *fields, "", "")).encode())
        assert answer.readline().startswith(b"HTTP/1.1 101 ")
        while answer.readline() != b"\r\n":
            pass
        client.sendall(b"hello\n")
        assert answer.readline() == b"HELLO\n"
        assert answer.read() == b"", "the end of the server is the end of the connection"
    assert proxy.upstream is not None


def test_while_the_connection_is_down_the_page_says_so_and_loads_again(proxy: LocalProxy, gate: Gate) -> None:
    cookie, _ = log_in(gate.url)
    proxy.upstream = None
    reply = ask(f"http://localhost:{gate.port}/", Cookie=cookie)
    assert (reply.status, reply.headers["Refresh"]) == (503, "2")
    assert "connecting to MLflow" in reply.body
    (nothing,) = free_ports(1)
    proxy.upstream = Upstream(nothing, _LOGIN)
    assert ask(f"http://localhost:{gate.port}/", Cookie=cookie).status == 503


def test_a_port_that_is_in_use_is_refused(gate: Gate) -> None:
    with (
        socket.create_server(("127.0.0.1", gate.port)),
        pytest.raises(RefusedError, match=f"cannot listen on port {gate.port}"),
    ):
        LocalProxy(gate, title="MLflow")


@pytest.mark.usefixtures("proxy")
def test_what_is_not_a_request_is_refused(gate: Gate) -> None:
    for raw in (b"GET /", b"GET / HTTP/2", b"GET / HTTP/1.1\r\nno colon", b"GET / HTTP/1.1\r\n a: b"):
        with socket.create_connection(("127.0.0.1", gate.port)) as client:
            client.sendall(raw + b"\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 400 "), raw


def test_a_head_is_passed_on_byte_by_byte_but_for_login_key_and_connection() -> None:
    raw = b"GET /\xe9?q=a%20b HTTP/1.1\r\nHost: localhost:1\r\nX-Name: caf\xe9\r\nConnection: keep-alive"
    passed = RequestHead.parse(raw).passed_on(authorization=None, without_cookie="open-1")
    assert passed.encoded() == raw.replace(b"keep-alive", b"close") + b"\r\n\r\n"
    shown = repr(Upstream(1, _LOGIN)) + repr(Gate(port=1, start="/", key=_KEY))
    assert not {secret for secret in (_LOGIN, _KEY) if secret in shown}, "neither is logged"


_ALL = "mlflow, grafana, prometheus, alertmanager, ray"


def test_wrong_words_are_refused_with_the_choices() -> None:
    for words, message in (
        ([], f"no UI is named\n  remedy: WHAT=…, one or more of {_ALL}"),
        (["mlflow", "grafana2"], "unknown UI 'grafana2'\n  remedy: did you mean grafana?"),
        (["mlflow", "ray", "--port", "5001"], "port 5001 is one port, for 2 UIs"),
        (["mlflow", "--job", "notes"], "job notes is for WHAT=ray"),
    ):
        assert_refused(2, message, "open", *words, "--env", "dev", "--outputs", "/nowhere")
