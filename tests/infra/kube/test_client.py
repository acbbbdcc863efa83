"""Clients from kubeconfigs: what they verify and present, and what they leave behind."""

from __future__ import annotations

import base64
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from infra.kube.client import authority_of, client_of
from tests.engines.servers import Handler, serving

_ASK_AND_BE_KILLED = """
import os, signal, sys
from pathlib import Path
from infra.kube.client import client_of
api = client_of(Path(sys.argv[1]))
print(api.call_api("GET", f"{api.configuration.host}/who").read().decode(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that signs itself, of a server at 127.0.0.1 and of its client, with its key next to it."""
    folder = tmp_path_factory.mktemp("certificate")
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    files = ["-keyout", str(folder / "own.key"), "-out", str(folder / "own.crt")]
    names = ["-subj", "/CN=tester", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *made, *files, *names], check=True, capture_output=True)
    return folder / "own.crt"


@pytest.fixture
def server(certificate: Path) -> Iterator[str]:
    """URL of a server that says whether the client has presented a certificate."""

    class Who(Handler):
        def do_GET(self) -> None:  # noqa: N802
            assert isinstance(self.connection, ssl.SSLSocket)
            has_certificate = bool(self.connection.getpeercert(binary_form=True))
            self.answer(200, json.dumps({"certificate": has_certificate}).encode())

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_OPTIONAL
    with ThreadingHTTPServer(("127.0.0.1", 0), Who) as found:
        found.socket = context.wrap_socket(found.socket, server_side=True)
        with serving(found):
            yield f"https://127.0.0.1:{found.server_port}"


def kubeconfig(folder: Path, server: str, *, cluster: dict[str, object], user: dict[str, str]) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(document))
    return file


def embedded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


@pytest.mark.parametrize(("has_certificate", "is_verified"), [(True, False), (False, True), (True, True)])
def test_a_program_that_is_killed_leaves_no_copy_of_a_certificate_or_key(
    certificate: Path, server: str, tmp_path: Path, *, has_certificate: bool, is_verified: bool
) -> None:
    key = certificate.with_suffix(".key")
    pair = {"client-certificate-data": embedded(certificate), "client-key-data": embedded(key)}
    unverified: dict[str, object] = {"insecure-skip-tls-verify": True}
    file = kubeconfig(
        tmp_path,
        server,
        cluster={"certificate-authority-data": embedded(certificate)} if is_verified else unverified,
        user=pair if has_certificate else {"token": "secret"},
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-W", "ignore", "-c", _ASK_AND_BE_KILLED, str(file)]
    environment = {**os.environ, "TMPDIR": str(scratch)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert json.loads(done.stdout) == {"certificate": has_certificate}
    assert list(scratch.iterdir()) == []


def test_a_refreshed_token_brings_no_removed_file_back(certificate: Path, server: str, tmp_path: Path) -> None:
    cluster: dict[str, object] = {"certificate-authority-data": embedded(certificate)}
    file = kubeconfig(tmp_path, server, cluster=cluster, user={"token": "secret"})
    first, second = client_of(file), client_of(file)
    assert authority_of(first) == authority_of(second) == certificate.read_bytes()
    settings = first.configuration
    for _ in range(2):  # each time it is refreshed, if it has expired
        assert settings.get_api_key_with_prefix("BearerToken") == "Bearer secret"
    assert (settings.ssl_ca_cert, settings.cert_file, settings.key_file) == (None, None, None)


def test_a_certificate_that_is_a_file_is_read_where_it_is(certificate: Path, server: str, tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, server, cluster={"certificate-authority": str(certificate)}, user={"token": "secret"})
    found = client_of(file)
    assert found.configuration.ssl_ca_cert == str(certificate)
    assert authority_of(found) == certificate.read_bytes()
