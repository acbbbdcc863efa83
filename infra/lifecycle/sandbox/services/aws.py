"""S3 and Secrets Manager for the pods of a sandbox, served by moto."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from infra.lifecycle.sandbox.services.facts import AWS_PORT

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
"""moto accepts any."""


def has_moto() -> bool:
    """Whether this environment has moto's server: the one for development has."""
    return find_spec("moto") is not None and find_spec("flask") is not None


def aws_command(address: str) -> list[str]:
    """The command that runs the API."""
    return [sys.executable, "-m", "moto.server", "--host", address, "--port", str(AWS_PORT)]
