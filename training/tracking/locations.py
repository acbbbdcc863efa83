"""Where MLflow's data is: the embedded store, and addresses as people may see them."""

from __future__ import annotations

import re
from pathlib import Path

from training.config.schema import TrackingSettings, TrainingSettings

EMBEDDED_FOLDER = Path(".local/mlflow")
"""Folder of the embedded store, below the current one as everything local is."""


def embedded_uri() -> str:
    """Address of the embedded SQLite database; the database need not exist."""
    return f"sqlite:///{EMBEDDED_FOLDER.resolve() / 'mlflow.db'}"


def embedded_artifacts() -> Path:
    """Folder of the embedded store's artifacts, absolute."""
    return EMBEDDED_FOLDER.resolve() / "artifacts"


def tracking_uri(settings: TrackingSettings) -> str:
    """Address of the store that a run is recorded in."""
    return settings.uri or embedded_uri()


def without_password(uri: str) -> str:
    """The address without user and password, for messages, parameters and files that others can read."""
    return re.sub(r"^([\w+.-]+://)[^/]*@", r"\1", uri)


def run_page(uri: str, *, experiment_id: str, run_id: str) -> str:
    """Address of the run's page; empty where the store has no server that shows pages."""
    if not uri.startswith(("http://", "https://")):
        return ""
    return f"{without_password(uri).rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}"


def registered_model(settings: TrainingSettings) -> str:
    """Name in the model registry: the setting's, or `<model>-<dataset>` in characters that a registry takes."""
    made = f"{settings.model.name}-{settings.data.dataset}"
    return settings.tracking.registered_model or re.sub(r"[^\w.-]", ".", made)
