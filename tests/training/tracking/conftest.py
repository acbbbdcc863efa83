"""Deliveries in the process of a test register their model there; followers, which are processes, use the real registration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.tracking.recorded import InProcessRegistration
from training.tracking import delivery


@pytest.fixture(autouse=True)
def registration_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the process that registers a model."""
    monkeypatch.setattr(delivery, "ModelRegistration", InProcessRegistration)


@pytest.fixture
def uri(store_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty store for one test; MLflow resolves relative paths beside it."""
    monkeypatch.chdir(tmp_path)
    return store_uri
