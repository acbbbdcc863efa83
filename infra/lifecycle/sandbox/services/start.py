"""Which services this machine can run, and the commands that run them."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from infra.lifecycle.sandbox.modules import PROMETHEUS
from infra.lifecycle.sandbox.node.machine import Machine
from infra.lifecycle.sandbox.node.prerequisites import SYSTEM_PATH
from infra.lifecycle.sandbox.services import postgres
from infra.lifecycle.sandbox.services.authority import authority_folder
from infra.lifecycle.sandbox.services.aws import aws_command, has_moto
from infra.lifecycle.sandbox.services.facts import AWS_PORT, DATABASE_PORT, PROMETHEUS_PORT, Services
from infra.lifecycle.sandbox.services.prometheus import prometheus_command
from infra.spec.errors import RefusedError

_START_SECONDS = 60.0

_UNTRACKED = "MLflow's pods wait; jobs train, and are not tracked"
_NO_POSTGRES = f"PostgreSQL is missing: apt-get install postgresql. Without it {_UNTRACKED}"
_NO_AWS = f"S3 and Secrets Manager are missing: make env FOR=dev installs moto. Without them {_UNTRACKED}"
_NO_PROMETHEUS = (
    "Prometheus is missing: make engines, RUNLEVEL=1 apt-get install prometheus, or PROMETHEUS=/path/to/prometheus. "
    "Without it `make jobs` shows no progress; jobs train"
)


@dataclass(frozen=True, kw_only=True)
class ServicePrograms:
    """Services before their start.

    Attributes:
        services: what is known of them.
        programs: command by name, for `Machine.run`.
    """

    services: Services
    programs: Mapping[str, list[str]]

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders that the machine needs of its own."""
        return postgres.FOLDERS if "postgres" in self.programs else ()

    def await_ready(self, machine: Machine) -> None:
        """Wait until all services listen.

        Raises:
            PlatformError: one does not in time; carries the ends of the logs.
        """
        ports = {"postgres": DATABASE_PORT, "aws": AWS_PORT, "prometheus": PROMETHEUS_PORT}
        for name in self.programs:
            listening = partial(_listens, self.services.address, ports[name])
            machine.await_(listening, what=f"start of {name}", seconds=_START_SECONDS)


def service_programs(
    folder: Path, *, address: str, kubeconfig: Path, environment: Mapping[str, str]
) -> ServicePrograms:
    """Prepare every service that this machine has the programs of.

    Args:
        folder: made for the services' files.
        address: where they listen.
        kubeconfig: of an administrator.
        environment: PATH; `PROMETHEUS` may name the program; see also `modules.cache_root`.

    Raises:
        RefusedError: `PROMETHEUS` is not executable.
        PlatformError: openssl made no certificate.
    """
    folder.mkdir(mode=0o700)
    shared = folder / "shared"
    shared.mkdir()
    path = f"{environment.get('PATH', '')}:{SYSTEM_PATH}"
    programs: dict[str, list[str]] = {}
    password = None
    database, prometheus = postgres.find_postgres(path), find_prometheus(path, environment)
    if database is not None:
        password = secrets.token_urlsafe(24)
        programs["postgres"] = postgres.postgres_command(
            database,
            address=address,
            password=password,
            folder=folder / "postgres",
            authority=authority_folder(environment),
        )
    if has_moto():
        programs["aws"] = aws_command(address)
    if prometheus is not None:
        programs["prometheus"] = prometheus_command(
            prometheus, kubeconfig=kubeconfig, folder=folder / "prometheus", address=address
        )
    lines = {"postgres": _NO_POSTGRES, "aws": _NO_AWS, "prometheus": _NO_PROMETHEUS}
    services = Services(
        address=address,
        shared=str(shared),
        read_only=str(folder / "shared-read-only"),
        database_password=password,
        has_aws="aws" in programs,
        has_prometheus="prometheus" in programs,
        missing=tuple(line for name, line in lines.items() if name not in programs),
    )
    Path(services.read_only).mkdir()
    return ServicePrograms(services=services, programs=programs)


def find_prometheus(path: str, environment: Mapping[str, str]) -> Path | None:
    """Prometheus: `$PROMETHEUS`, else the engines', of the release's version, else in the folders of `path`; None if there is none.

    Raises:
        RefusedError: the file that `PROMETHEUS` names is not executable.
    """
    named = environment.get("PROMETHEUS")
    if named is None:
        found = shutil.which("prometheus", path=f"{PROMETHEUS.cache_folder(environment)}:{path}")
        return None if found is None else Path(found)
    if not os.access(named, os.X_OK):
        raise RefusedError(f"PROMETHEUS={named}: not executable", remedy="set it to Prometheus's program, or unset it")
    return Path(named).resolve()


def _listens(address: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1):
        return True
    return False
