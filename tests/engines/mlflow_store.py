"""MLflow's embedded store: a database of its own for each test, without the seconds that it takes to create one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with empty MLflow tables: to create one takes seconds, to copy one no time."""
    from mlflow import MlflowClient  # noqa: PLC0415 - every session loads this module

    file = tmp_path_factory.mktemp("store") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def store_uri(empty_store: Path, tmp_path: Path) -> str:
    """URI of an empty store for one test."""
    return f"sqlite:///{shutil.copy(empty_store, tmp_path / 'mlflow.db')}"
