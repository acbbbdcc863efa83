"""What is known of a sandbox's services: written by its keeper, read by the commands that fill and change the sandbox."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

DATABASE_PORT = 5432
AWS_PORT = 443
"""Port of the AWS API, which speaks plain HTTP: the environment's network policies allow this port, as of AWS's own endpoints."""

PROMETHEUS_PORT = 9090

DATABASE_USER = "mlflow"


@dataclass(frozen=True, kw_only=True)
class Services:
    """The services of one sandbox.

    Attributes:
        address: where all of them listen, and where the operators' connections come from.
        shared: folder that stands in for the shared file systems.
        read_only: the same folder on the nodes, mounted read-only.
        database_password: password of PostgreSQL's superuser `DATABASE_USER`; None: there is no PostgreSQL.
        has_aws: whether there is an API of S3 and Secrets Manager.
        has_prometheus: whether there is a Prometheus.
        missing: a line for each service that is not there: why, what provides it, and what works without it.
    """

    address: str
    shared: str
    read_only: str
    database_password: str | None
    has_aws: bool
    has_prometheus: bool
    missing: tuple[str, ...]

    @property
    def aws_endpoint(self) -> str:
        """URL of the AWS API."""
        return f"http://{self.address}:{AWS_PORT}"

    def write(self, folder: Path) -> None:
        """Write them into a sandbox's folder; only its owner may read the password."""
        file = _file(folder)
        file.touch(mode=0o600)
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Read what `write` wrote; None for a sandbox without real nodes."""
        file = _file(folder)
        if not file.is_file():
            return None
        fields = json.loads(file.read_text(encoding="utf-8"))
        return cls(**{**fields, "missing": tuple(fields["missing"])})


def _file(folder: Path) -> Path:
    return folder / "services.json"
