"""Locations of MLflow data: the embedded store, and URIs without credentials."""

from __future__ import annotations

import re
from pathlib import Path

from training.config.schema import TrackingSettings, TrainingSettings
from training.tracking.state import TrackingState

EMBEDDED_FOLDER = Path(".local/mlflow")
"""Folder of the embedded store, relative to the current folder."""

_DATABASE = "mlflow.db"
_SQLITE = "sqlite:///"


def embedded_uri() -> str:
    """URI of the embedded SQLite database, which need not exist."""
    return f"{_SQLITE}{EMBEDDED_FOLDER.resolve() / _DATABASE}"


def embedded_artifacts() -> Path:
    """Artifact folder of the embedded store, absolute."""
    return EMBEDDED_FOLDER.resolve() / "artifacts"


def tracking_uri(settings: TrackingSettings, run_directory: Path) -> str:
    """URI of the tracking store of a run.

    Without a configured one, it is the embedded store that already has the run, whatever the current folder is now; else the embedded
    store of the current folder.
    """
    if settings.uri:
        return settings.uri
    state = TrackingState.load(run_directory)
    recorded = Path(state.uri.removeprefix(_SQLITE)) if state is not None else Path()
    if recorded.is_file() and recorded.match(str(EMBEDDED_FOLDER / _DATABASE)):
        return f"{_SQLITE}{recorded}"
    return embedded_uri()


def redact_uri(uri: str) -> str:
    """The URI without user and password, for messages, parameters and shared files."""
    return re.sub(r"^([\w+.-]+://)[^/]*@", r"\1", uri)


def run_page(uri: str, *, experiment_id: str, run_id: str) -> str:
    """URL of the run in MLflow's UI; empty if the store has no server."""
    if not uri.startswith(("http://", "https://")):
        return ""
    return f"{redact_uri(uri).rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}"


def registered_model(settings: TrainingSettings) -> str:
    """Name in the model registry: the configured one, or `<model>-<dataset>` with invalid characters replaced."""
    default = f"{settings.model.name}-{settings.data.dataset}"
    return settings.tracking.registered_model or re.sub(r"[^\w.-]", ".", default)
