"""The number of workers: a range of an elastic run, and another number, at which the batch stays and the accumulation adapts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.config.refused import assert_refused, refusal
from training.config.load import load_settings, render
from training.config.resize import division_of, fitting_workers, resized
from training.config.schema import TrainingSettings
from training.errors import SettingsError


def settings(workers: int, accumulation: int = 1, batch: int = 64, **loop: int) -> TrainingSettings:
    sections: dict[str, Any] = {
        "loop": {"global_batch": batch, "accumulation": accumulation, **loop},
        "scale": {"workers": workers},
    }
    return TrainingSettings.model_validate(sections)


def test_micro_batches_grow_in_number_and_not_in_size() -> None:
    for workers, accumulation, line in (
        (2, 2, "2 workers x 2 micro-batches of 16 samples"),
        (1, 4, "1 worker x 4 micro-batches of 16 samples"),
        (8, 1, "8 workers x 1 micro-batch of 8 samples"),
    ):
        changed, found = resized(settings(4), workers)
        assert (changed.scale.workers, changed.loop.accumulation) == (workers, accumulation)
        assert found == f"{line}, instead of 4 workers x 1 micro-batch of 16 samples; the global batch stays 64"
    changed, _ = resized(settings(2, accumulation=4), 4)
    assert (changed.loop.accumulation, division_of(changed).micro_batch) == (2, 8)
    began = settings(4, accumulation=2)
    assert resized(began, 4) == (began, "")


@given(batch=st.integers(1, 96), workers=st.integers(1, 8), accumulation=st.integers(1, 4), number=st.integers(1, 96))
def test_a_resized_run_is_valid_and_takes_no_more(batch: int, workers: int, accumulation: int, number: int) -> None:
    parts = workers * accumulation
    began = settings(workers, accumulation, batch=parts * batch)
    if number not in fitting_workers(began):
        return
    changed, _ = resized(began, number)
    TrainingSettings.model_validate(changed.model_dump())
    assert changed.loop.global_batch == began.loop.global_batch
    assert division_of(changed).micro_batch <= division_of(began).micro_batch
    fewer = changed.loop.accumulation - 1
    if number != workers and fewer and began.loop.global_batch % (number * fewer) == 0:
        assert began.loop.global_batch // (number * fewer) > division_of(began).micro_batch


def test_logical_shards_stay_whoever_computes_them() -> None:
    changed, line = resized(settings(4, logical_shards=8), 2)
    assert changed.loop == settings(4, logical_shards=8).loop
    assert changed.micro_batches == 4
    assert line.startswith("2 workers x 4 micro-batches of 8 samples, instead of 4 workers x 2 micro-batches of 8")


def test_workers_that_do_not_fit_are_refused_with_the_nearest_that_do() -> None:
    compressed = load_settings(overrides=["communication.hook=bf16"], environment={})
    stages = ["strategy.name=pipeline", "strategy.stages=2", "loop.accumulation=2", "scale.launcher=torchrun"]
    pipeline = load_settings(overrides=stages, environment={})
    for began, workers, message in (
        (settings(4), 3, r"scale\.workers=3 cannot share loop\.global_batch=64 equally\n.*use 2 or 4"),
        (settings(4), 100, r"scale\.workers=100 cannot share loop\.global_batch=64 equally\n.*use 64"),
        (settings(4, logical_shards=4), 8, r"scale\.workers=8 cannot share loop\.logical_shards=4 equally\n.*use 4"),
        (compressed, 1, r"scale\.workers=1 does not fit: communication\.hook=bf16 needs .*\n.*use 2"),
        (pipeline, 4, "the workers of a pipeline have different layers"),
    ):
        with pytest.raises(SettingsError, match=message):
            resized(began, workers)


def test_a_range_is_the_fewest_and_the_most_workers() -> None:
    for text in ("{min: 2, max: 8}", "2-8", "' 2-8 '"):
        scale = load_settings(overrides=[f"scale.workers={text}"], environment={}).scale
        assert (scale.min_workers, scale.workers, scale.is_elastic) == (2, 8, True)
    scale = load_settings(flags={"num_workers": "1-4"}, environment={}).scale
    assert (scale.min_workers, scale.workers) == (1, 4)
    assert not load_settings(overrides=["scale.workers=2-2"], environment={}).scale.is_elastic


def test_rendered_settings_keep_the_range_and_a_number_replaces_it(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(render(load_settings(overrides=["scale.workers=2-8"], environment={})), encoding="utf-8")
    assert load_settings([file], environment={}).scale.min_workers == 2
    for workers in ("4", "8"):
        scale = load_settings([file], flags={"num_workers": workers}, environment={}).scale
        assert (scale.workers, scale.min_workers) == (int(workers), None)


def test_a_range_that_cannot_be_is_refused_with_its_values() -> None:
    stages = "strategy.name=pipeline strategy.stages=2 loop.accumulation=2"
    cases = {
        "scale.workers=8-2": "workers=8-2: the fewest workers must not be more than the most; write 2-8",
        "scale.workers=0-2": "workers=0-2: the fewest workers must be 1 or more",
        "scale.workers=2-": "workers=2- must be a number, or a range such as 2-8",
        "scale.workers=two": "workers=two must be a number, or a range such as 2-8",
        "scale.workers=2-4 scale.launcher=torchrun": "workers=2-4 needs launcher=ray, … got launcher=torchrun; write wor",
        f"scale.workers=2-4 {stages}": "scale.workers=2-4 cannot be elastic with strategy.name=pipeline",
    }
    assert_refused(cases)
    assert "must be a number, or have min and max: {min: 2, max: 8}" in refusal("scale.workers={min: 2}")
    assert "scale.workers = many: must be a valid integer" in refusal("scale.workers={min: 2, max: many}")
