"""Verification of the database's certificate and host name with the image's libpq settings."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg2
import pytest

from tests.engines.postgres import tls_server

DOCKERFILE = Path("platform_charts/images/mlflow_server/Dockerfile")


def authority(folder: Path, name: str) -> Path:
    """A certificate authority; returns the path of its certificate, next to its key."""
    files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")]
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    openssl(*made, *files, "-subj", f"/CN={name}")
    return folder / f"{name}.crt"


def openssl(*arguments: str) -> None:
    """Run OpenSSL."""
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """Port of a server with a certificate for `localhost`, and the certificate of its authority."""
    folder = tmp_path_factory.mktemp("tls")
    signer = authority(folder, "rds")
    key, request, certificate = folder / "server.key", folder / "server.csr", folder / "server.crt"
    made = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost"]
    openssl(*made, "-keyout", str(key), "-out", str(request))
    names = folder / "names"
    names.write_text("subjectAltName=DNS:localhost")
    by = ["-CA", str(signer), "-CAkey", str(folder / "rds.key"), "-CAcreateserial", "-days", "2"]
    openssl("x509", "-req", "-in", str(request), *by, "-extfile", str(names), "-out", str(certificate))
    with tls_server(certificate, key) as url:
        port = urlsplit(url).port
        assert port is not None
        yield port, signer


def connect(port: int, bundle: Path, monkeypatch: pytest.MonkeyPatch, *, host: str = "localhost") -> None:
    """Connect with the libpq environment variables of the image."""
    variables = dict(re.findall(r"(PGSSL\w+)=(\S+)", DOCKERFILE.read_text(encoding="utf-8")))
    for name, value in {**variables, "PGSSLROOTCERT": str(bundle)}.items():
        monkeypatch.setenv(name, value)
    with closing(psycopg2.connect(host=host, port=port, user="test", dbname="postgres")) as connection:
        assert connection.info.ssl_in_use


def test_only_a_certificate_of_the_trusted_authority_for_the_host_name_is_accepted(
    server: tuple[int, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connect(*server, monkeypatch)
    with pytest.raises(psycopg2.OperationalError, match="certificate verify failed"):
        connect(server[0], authority(tmp_path, "another"), monkeypatch)
    with pytest.raises(psycopg2.OperationalError, match="does not match host name"):
        connect(*server, monkeypatch, host="127.0.0.1")
