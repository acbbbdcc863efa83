"""The runs that faults happen to: a small CNN on digits, which takes seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.faults.cell import Settings
from tests.training.runs import small_settings
from training.config.schema import TrainingSettings

EVERY_STEPS: Final = 20
"""Interval of the checkpoints."""

Sections = dict[str, dict[str, Any]]

_TWO_RANKS: Final[Sections] = {
    # As the models that fail (`tests.training.faults.models`).
    "model": {"name": "simple_cnn", "options": {"dropout": 0.25}},
    "loop": {"epochs": 20, "log_sample_ids": True},
    "schedule": {"name": "constant"},
    "checkpoint": {"every_steps": EVERY_STEPS},
    "scale": {"launcher": "ray", "workers": 2},
}


def two_ranks(**sections: dict[str, Any]) -> TrainingSettings:
    """Two ranks of Ray Train, 420 steps; `sections` override that key by key."""
    merged = {name: {**given, **sections.get(name, {})} for name, given in _TWO_RANKS.items()}
    return small_settings(**{**sections, **merged})


def alone(**sections: dict[str, Any]) -> TrainingSettings:
    """One rank without Ray."""
    return two_ranks(**{**sections, "scale": {"launcher": "plain", "workers": 1, **sections.get("scale", {})}})


def fixed(settings: TrainingSettings) -> Settings:
    """Settings that name no file."""
    return lambda _: settings


def failing(model: str, *, step: int, rank: int = 0, **sections: dict[str, Any]) -> Settings:
    """Two ranks with a model of `tests.training.faults.models` that fails once, in a step of one rank."""

    def make(files: Path) -> TrainingSettings:
        options = {"step": step, "rank": rank, "trace": str(files / "failed")}
        return two_ranks(model={"name": f"tests.training.faults.models:{model}", "options": options}, **sections)

    return make
