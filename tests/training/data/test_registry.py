"""Datasets by name, error messages, and factories of your own."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.config.schema import DataSettings, OptionValue
from training.data import registry
from training.errors import DataError, SettingsError

WITH_FILES = [spec.name for spec in registry.DATASETS.specs if spec.needs_path]
NEEDED: dict[str, dict[str, OptionValue]] = {"parquet": {"inputs": ["x"], "target": "y"}}
"""Options without a default."""


def test_a_dataset_without_files_loads_with_its_default_options_and_takes_no_path() -> None:
    for dataset in ("digits", "synthetic"):
        bundle = registry.load_dataset(DataSettings(dataset=dataset))
        assert bundle.name == dataset
        assert len(bundle.fingerprint) == 64
        registry.check_files(DataSettings(dataset=dataset))
        with pytest.raises(SettingsError, match=r"data\.path=x is set, but dataset"):
            registry.validate(DataSettings(dataset=dataset, path=Path("x")))
    registry.check_files(DataSettings(dataset="own_module:load", path=Path("nowhere")))  # its files are not known


def test_an_invalid_option_is_rejected_with_key_value_and_rule() -> None:
    cases: list[tuple[str, dict[str, OptionValue], str]] = [
        ("synthetic", {"samples": 0}, "data.options.samples = 0: must be greater than 0"),
        ("synthetic", {"kind": "sound"}, "data.options.kind = sound: must be one of features, images"),
        ("synthetic", {"height": 8}, "height=8 is an option of kind=images, got kind=features"),
        ("cifar10", {"crop": 4}, "data.options.crop: no such setting\n  remedy: options of dataset cifar10: none"),
    ]
    for dataset, options, expected in cases:
        path = Path("x") if dataset in WITH_FILES else None
        with pytest.raises(SettingsError) as raised:
            registry.validate(DataSettings(dataset=dataset, path=path, options=options))
        assert expected in str(raised.value)
        assert f"options of dataset {dataset}: " in raised.value.remedy


def test_a_dataset_with_files_needs_a_path_that_is_there(tmp_path: Path) -> None:
    for dataset in WITH_FILES:
        with pytest.raises(SettingsError, match=r"data\.path is not set"):
            registry.validate(DataSettings(dataset=dataset, options=NEEDED.get(dataset, {})))
        with pytest.raises(DataError, match="nowhere"):
            registry.check_files(DataSettings(dataset=dataset, path=tmp_path / "nowhere"))


def test_an_empty_split_is_rejected() -> None:
    with pytest.raises(SettingsError) as raised:
        registry.load_dataset(DataSettings(dataset="digits", validation_fraction=0))
    assert "the validation split of dataset digits is empty at data.validation_fraction=0" in str(raised.value)


def test_an_own_factory_gets_the_settings_and_its_options_and_an_unusable_one_is_rejected() -> None:
    slow_digits = "tests.training.profiling.bottlenecks:slow_digits"
    bundle = registry.load_dataset(DataSettings(dataset=slow_digits, options={"seconds": 0.0}, validation_fraction=0.2))
    assert (len(bundle.train), len(bundle.validation)) == (1151, 287)
    for factory, expected in (
        ("builtins:absent", "data.dataset=builtins:absent: module builtins has no attribute 'absent'"),
        ("builtins:id", "data.dataset=builtins:id returned int"),
    ):
        with pytest.raises(SettingsError) as raised:
            registry.load_dataset(DataSettings(dataset=factory))
        assert expected in str(raised.value)
