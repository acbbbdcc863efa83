"""Settings that may change between two checkpoints do so with effect, and every setting is one of the two kinds."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from observability.runlog import Restored, read_all, select
from tests.training.runs import run_alone, small_settings
from training.checkpoint.changes import CHANGEABLE, KEPT, is_changeable
from training.config.schema import TrainingSettings
from training.errors import ResumeMismatchError
from training.launch.task import Outcome

_SECTIONS = ("model", "data", "objective", "optimizer", "ema", "schedule", "loop", "precision")
_WITHOUT_EFFECT = {
    "loop.nonfinite",
    "loop.log_sample_ids",
    "loop.evaluation_batch",
    "data.loader_workers",
    "data.prefetch",
    "data.pin_memory",
}
"""Settings that the weights of a healthy run do not depend on."""


def test_every_setting_that_a_search_may_vary_is_changeable_or_kept_and_not_both() -> None:
    keys = {"run.seed"}
    for section in _SECTIONS:
        model = TrainingSettings.model_fields[section].annotation
        assert model is not None
        keys |= {f"{section}.{name}" for name in model.model_fields}
    assert keys == (CHANGEABLE.keys() - {"model.options.dropout"}) | KEPT.keys()
    options = {"objective.options.label_smoothing"}
    others = {"model.options.width", "data.options.size", "optimizer.no_such_setting"}
    found = {key for key in keys | options | others | CHANGEABLE.keys() if is_changeable(key)}
    assert found == CHANGEABLE.keys() | options


def change(key: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two values of a setting, each with the settings that it needs."""
    sgd = {"optimizer": {"name": "sgd", "learning_rate": 0.05}}
    step = {"schedule": {"name": "step", "step_epochs": 1}}
    values: dict[str, tuple[dict[str, Any], Any, Any]] = {
        "objective.options": ({}, {}, {"label_smoothing": 0.2}),
        "optimizer.learning_rate": ({}, 3e-3, 1e-4),
        "optimizer.base_batch": ({}, None, 256),
        "optimizer.momentum": (sgd, 0.9, 0.0),
        "optimizer.nesterov": (sgd, False, True),
        "optimizer.betas": ({}, (0.9, 0.999), (0.5, 0.9)),
        "optimizer.weight_decay": ({}, 0.0, 10.0),
        "schedule.name": ({}, "cosine", "constant"),
        "schedule.warmup_steps": ({}, 0, 15),
        "schedule.step_epochs": (step, 30, 1),
        "schedule.gamma": (step, 1.0, 0.1),
        "schedule.final_fraction": ({}, 0.01, 1.0),
        "schedule.rise_fraction": ({"schedule": {"name": "one_cycle"}}, 0.3, 0.8),
        "loop.accumulation": ({}, 1, 2),
        "loop.logical_shards": ({}, None, 4),
        "loop.clip_norm": ({}, 1.0, 0.01),
        "loop.nonfinite": ({}, "stop", "skip"),
        "loop.log_sample_ids": ({}, False, True),
        "loop.evaluation_batch": ({}, 512, 100),
        "data.augment": ({}, True, False),
        "data.loader_workers": ({}, 0, 1),
        "data.prefetch": ({}, 2, 4),
        "data.pin_memory": ({}, True, False),
        "model.options.dropout": ({}, 0.0, 0.5),
    }
    common, first, second = values[key]
    return with_value(common, key, first), with_value(common, key, second)


def with_value(sections: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    section, _, name = key.partition(".")
    own: dict[str, Any] = {"options": {"dropout": value}} if name == "options.dropout" else {name: value}
    return {**sections, section: {**sections.get(section, {}), **own}}


def settings(sections: dict[str, Any], **loop: object) -> TrainingSettings:
    options = {"model": {"name": "mlp"}, **sections}
    options["model"] = {"name": "mlp", **options["model"]}
    return small_settings(**{**options, "loop": {**sections.get("loop", {}), **loop}})


@pytest.mark.extended
def test_a_run_that_resumes_with_another_value_trains_on_with_it(tmp_path: Path) -> None:
    """The two runs share their first 10 steps; were the old value restored from the checkpoint, they would end in equal weights.

    An epoch has 21 steps, and a rate that falls after it must have fallen. Another reader needs Ray, and gives the same weights:
    tests/training/data/test_ray_reader.py.
    """
    begun: dict[str, tuple[Path, Outcome]] = {}
    for key in sorted(CHANGEABLE.keys() - {"data.reader"}):
        first, second = change(key)
        begins = settings(first, max_steps=10)
        if (name := begins.model_dump_json()) not in begun:
            folder = tmp_path / f"{key} before"
            run_alone(begins, folder)
            shutil.copytree(folder, tmp_path / f"{key} same")
            begun[name] = folder, run_alone(settings(first, max_steps=26), tmp_path / f"{key} same")
        folder, same = begun[name]
        shutil.copytree(folder, tmp_path / f"{key} changed")
        changed = run_alone(settings(second, max_steps=26), tmp_path / f"{key} changed")
        assert [event.step for event in select(read_all(tmp_path / f"{key} changed"), Restored)] == [10]
        assert changed.step == same.step == 26
        assert (changed.weights_sha256 == same.weights_sha256) == (key in _WITHOUT_EFFECT), key


def test_a_setting_that_is_kept_is_refused_on_resume(tmp_path: Path) -> None:
    others: dict[str, object] = {
        "run.seed": 1,
        "model.name": "simple_cnn",
        "model.options": {"hidden": [8]},
        "data.validation_fraction": 0.2,
        "optimizer.name": "sgd",
        "loop.global_batch": 32,
    }
    run_alone(settings({}, max_steps=5), tmp_path)
    for key, other in others.items():
        with pytest.raises(ResumeMismatchError):
            run_alone(settings(with_value({}, key, other), max_steps=10), tmp_path)
