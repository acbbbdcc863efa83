"""Small runs of every objective."""

from __future__ import annotations

from typing import Any

from tests.training.runs import small_settings
from training.config.schema import TrainingSettings

_SECTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "image": {
        "model": {"name": "simple_cnn", "options": {"width": 8, "dropout": 0.2}},
        "objective": {"options": {"mixup": 0.3, "label_smoothing": 0.1}},
    },
    "weighted image": {
        "model": {"name": "simple_cnn", "options": {"width": 8}},
        "objective": {"options": {"class_weights": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}},
    },
    "text": {
        "model": {"name": "transformer", "options": {"width": 16, "layers": 1, "heads": 2}},
        "data": {"dataset": "python_reference", "options": {"length": 16}},
        "objective": {"name": "language_modelling"},
        "loop": {"max_steps": 60},
    },
    "padded text": {
        "model": {"name": "transformer", "options": {"width": 16, "layers": 1, "heads": 2, "dropout": 0.0}},
        "data": {"dataset": "tests.training.objectives.own:padded_text"},
        "objective": {"name": "language_modelling"},
    },
    "regression": {
        "model": {"name": "mlp", "options": {"hidden": [16], "dropout": 0.1}},
        "data": {"dataset": "diabetes"},
        "objective": {"name": "regression", "options": {"loss": "huber"}},
        "loop": {"epochs": 8},
    },
    "multi-label": {
        "model": {"name": "mlp", "options": {"hidden": [16], "dropout": 0.1}},
        "data": {
            "dataset": "synthetic",
            "options": {"targets": "labels", "classes": 6, "features": 40, "samples": 500, "evaluation_samples": 600},
        },
        "objective": {"name": "multi_label", "options": {"threshold": 0.4, "positive_weights": [1, 2, 1, 2, 1, 2]}},
        "loop": {"epochs": 6},
    },
    "own": {
        "model": {"name": "mlp", "options": {"hidden": [16]}},
        "data": {"dataset": "diabetes"},
        "objective": {"name": "tests.training.objectives.own:Quantile", "options": {"share": 0.8}},
        "loop": {"epochs": 8},
    },
}

RECIPES = tuple(_SECTIONS)


def recipe(name: str, *, workers: int = 1, launcher: str = "plain", **sections: dict[str, Any]) -> TrainingSettings:
    """The settings of a run of one objective; `sections` override them key by key."""
    base = _SECTIONS[name]
    base = base | {section: {**base.get(section, {}), **values} for section, values in sections.items()}
    scale = {"launcher": launcher if workers == 1 else "torchrun", "workers": workers}
    return small_settings(**{**base, "scale": scale, "loop": {"global_batch": 32, **base.get("loop", {})}})
