"""Tests of the number of workers of an elastic run."""

from __future__ import annotations

from pathlib import Path

from tests.training.config.refused import assert_refused, refusal
from training.config.load import load_settings, render


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
