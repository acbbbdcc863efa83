"""MLflow's workspaces in a process that opens the databases itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from mlflow.environment_variables import MLFLOW_ENABLE_WORKSPACES


@contextmanager
def workspaces_enabled() -> Iterator[None]:
    """Let MLflow's stores tell workspaces apart, as the server does with --enable-workspaces."""
    name = MLFLOW_ENABLE_WORKSPACES.name
    before = os.environ.get(name)
    os.environ[name] = "true"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
