"""Registers models in this process: a process for each would import torch for each."""

from __future__ import annotations

from pathlib import Path

import mlflow

from training.tracking.model import register_model


class InProcessRegistration:
    """In place of `training.tracking.registration.ModelRegistration`, which the tests of the follower use."""

    def register(self, run_directory: Path, *, uri: str, run_id: str, name: str) -> str:
        """Register the model."""
        mlflow.set_tracking_uri(uri)
        return register_model(run_directory, run_id=run_id, name=name)

    def cancel(self) -> None:
        """Do nothing: no process waits."""
