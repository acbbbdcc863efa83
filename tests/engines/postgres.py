"""A real PostgreSQL server on loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.engines.ports import free_port
from tests.engines.report_table import absent, ran, skipped
from tests.engines.servers import running

_NOBODY = 65534


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str | None]:
    """SQLAlchemy URL of an empty database; None if PostgreSQL is not installed."""
    programs = _programs()
    if programs is None:
        absent("PostgreSQL", "no initdb on PATH or under /usr/lib/postgresql", "apt-get install postgresql")
        yield None
        return
    with _server(programs) as url:
        ran("PostgreSQL")
        yield url


def _programs() -> Path | None:
    """Folder of PostgreSQL's programs; Debian keeps them off the PATH."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return versions[-1].parent if versions else None


@contextmanager
def tls_server(certificate: Path, key: Path) -> Iterator[str]:
    """Run a server with this certificate; yields its SQLAlchemy URL. Skips if PostgreSQL is not installed."""
    programs = _programs()
    if programs is None:
        skipped("PostgreSQL", "no initdb on PATH or under /usr/lib/postgresql", "apt-get install postgresql")
    with _server(programs, tls=(certificate, key)) as url:
        ran("PostgreSQL")
        yield url


@contextmanager
def _server(programs: Path, *, tls: tuple[Path, Path] | None = None) -> Iterator[str]:
    """Run a server in its own folder: the user that it runs as under root cannot enter pytest's folders."""
    folder = Path(tempfile.mkdtemp(prefix="rtp-postgres-"))
    as_user: dict[str, Any] = {}
    if os.getuid() == 0:  # as which PostgreSQL refuses to run
        os.chown(folder, _NOBODY, _NOBODY)
        as_user = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
    try:
        data = folder / "data"
        initdb = [
            str(programs / "initdb"),
            "--no-sync",
            "--auth=trust",
            "--username=test",
            "--encoding=UTF8",
            str(data),
        ]
        subprocess.run(initdb, check=True, capture_output=True, cwd=folder, **as_user)
        port = free_port()
        settings = ["-h", "127.0.0.1", "-p", str(port), "-c", "unix_socket_directories=", "-c", "fsync=off"]
        if tls is not None:
            settings += ["-c", "ssl=on"]
            for file, name in zip(tls, ("server.crt", "server.key"), strict=True):  # the server's default paths
                (data / name).write_bytes(file.read_bytes())
                (data / name).chmod(0o600)
                if as_user:
                    os.chown(data / name, _NOBODY, _NOBODY)
        probe = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        with running(
            [str(programs / "postgres"), "-D", str(data), *settings],
            log=folder / "log",
            is_ready=lambda: subprocess.run(probe, check=False).returncode == 0,
            cwd=folder,
            **as_user,
        ):
            yield f"postgresql+psycopg2://test@127.0.0.1:{port}/postgres"
    finally:
        shutil.rmtree(folder)
