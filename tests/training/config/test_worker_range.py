"""Tests of the number of workers of an elastic run."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.spec.errors import SettingsError
from training.config.load import load_settings, render


@pytest.mark.parametrize("text", ["{min: 2, max: 8}", "2-8", "' 2-8 '"])
def test_a_range_is_the_fewest_and_the_most_workers(text: str) -> None:
    scale = load_settings(overrides=[f"scale.workers={text}"], environment={}).scale
    assert (scale.min_workers, scale.workers, scale.is_elastic) == (2, 8, True)


def test_a_flag_can_be_a_range() -> None:
    scale = load_settings(flags={"num_workers": "1-4"}, environment={}).scale
    assert (scale.min_workers, scale.workers) == (1, 4)


def test_a_range_of_one_number_is_not_elastic() -> None:
    assert not load_settings(overrides=["scale.workers=2-2"], environment={}).scale.is_elastic


def test_rendered_settings_keep_the_range_and_a_number_replaces_it(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(render(load_settings(overrides=["scale.workers=2-8"], environment={})), encoding="utf-8")
    assert load_settings([file], environment={}).scale.min_workers == 2
    for workers in ("4", "8"):
        scale = load_settings([file], flags={"num_workers": workers}, environment={}).scale
        assert (scale.workers, scale.min_workers) == (int(workers), None)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["scale.workers=8-2"], "workers=8-2: the fewest workers must not be more than the most; write 2-8"),
        (["scale.workers=0-2"], "workers=0-2: the fewest workers must be 1 or more"),
        (["scale.workers=2-"], "workers=2- must be a number, or a range such as 2-8"),
        (["scale.workers=two"], "workers=two must be a number, or a range such as 2-8"),
        (["scale.workers={min: 2}"], "must be a number, or have min and max: {min: 2, max: 8}"),
        (["scale.workers={min: 2, max: many}"], "scale.workers = many: must be a valid integer"),
        (
            ["scale.workers=2-4", "scale.launcher=torchrun"],
            "workers=2-4 needs launcher=ray, which adds and releases workers, got launcher=torchrun; write workers=4",
        ),
        (
            ["scale.workers=2-4", "strategy.name=pipeline", "strategy.stages=2", "loop.accumulation=2"],
            "scale.workers=2-4 cannot be elastic with strategy.name=pipeline",
        ),
    ],
)
def test_a_range_that_cannot_be_is_refused_with_its_values(overrides: list[str], message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings(overrides=overrides, environment={})
    assert message in str(refused.value)
