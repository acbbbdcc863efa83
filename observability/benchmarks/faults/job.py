"""The job that both sides train."""

from __future__ import annotations

from typing import Any

from training.config.schema import TrainingSettings

WORKERS = 2
SAVE_EVERY = 50
"""Steps between two checkpoints, on both sides: an epoch of the documented loop."""

_BATCH = 64
_FOR_EVER = 100_000


def paced_job(*, step_seconds: float, **sections: dict[str, Any]) -> TrainingSettings:
    """A perceptron on synthetic vectors whose step takes a little more than `step_seconds`; it does not end by itself.

    Restarts are unlimited on both sides, and all else of ours is the default.

    Args:
        step_seconds: that a step waits.
        sections: further settings, by section.
    """
    data = {"samples": _BATCH * SAVE_EVERY, "evaluation_samples": _BATCH, "features": 64}
    base: dict[str, dict[str, Any]] = {
        "model": {
            "name": "observability.benchmarks.faults.paced_model:build_paced_model",
            "options": {"network": "mlp", "seconds": step_seconds},
        },
        "data": {"dataset": "synthetic", "augment": False, "options": data},
        "loop": {"epochs": _FOR_EVER, "evaluate_every": _FOR_EVER, "global_batch": _BATCH},
        "checkpoint": {"every_steps": SAVE_EVERY},
        "scale": {"workers": WORKERS, "max_restarts": _FOR_EVER},
        "tracking": {"enabled": False},
    }
    names = base.keys() | sections.keys()
    merged = {name: {**base.get(name, {}), **sections.get(name, {})} for name in names}
    return TrainingSettings.model_validate(merged)
