"""Datasets by name, error messages, and factories of your own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from training.config.schema import DataSettings, OptionValue
from training.data import registry
from training.errors import DataError, SettingsError

HEAVY = ("torch", "ray", "mlflow", "numpy", "pyarrow", "sklearn", "matplotlib", "PIL")
WITH_FILES = [spec.name for spec in registry.DATASETS.specs if spec.needs_path]
NEEDED: dict[str, dict[str, OptionValue]] = {"parquet": {"inputs": ["x"], "target": "y"}}
"""Options without a default."""


def test_importing_and_validating_imports_no_heavy_package() -> None:
    program = textwrap.dedent(
        f"""
        import sys
        from training.config.schema import DataSettings
        from training.data import registry
        registry.validate(DataSettings(dataset="synthetic"))
        print([name for name in {HEAVY} if name in sys.modules])
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", registry.DATASETS.names)
def test_every_option_of_a_dataset_is_described(name: str) -> None:
    assert all(field.description for field in registry.DATASETS.find(name).options.model_fields.values())


@pytest.mark.parametrize("dataset", ["digits", "synthetic"])
def test_a_dataset_without_files_loads_with_its_default_options(dataset: str) -> None:
    bundle = registry.load_dataset(DataSettings(dataset=dataset))
    assert bundle.name == dataset
    assert len(bundle.fingerprint) == 64


def test_an_unknown_dataset_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(SettingsError) as raised:
        registry.validate(DataSettings(dataset="cifar-10"))
    assert "data.dataset=cifar-10: unknown dataset" in str(raised.value)
    assert "did you mean cifar10?" in raised.value.remedy


@pytest.mark.parametrize(
    ("dataset", "options", "expected"),
    [
        ("synthetic", {"samples": 0}, "data.options.samples = 0: must be greater than 0"),
        ("synthetic", {"kind": "sound"}, "data.options.kind = sound: must be one of features, images"),
        ("synthetic", {"height": 8}, "height=8 is an option of kind=images, got kind=features"),
        ("synthetic", {"kind": "images", "features": 8}, "features=8 is an option of kind=features, got kind=images"),
        ("digits", {"shift": 5}, "data.options.shift = 5: must be less than or equal to 4"),
    ],
)
def test_an_invalid_option_is_rejected_with_key_value_and_rule(
    dataset: str, options: dict[str, OptionValue], expected: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        registry.validate(DataSettings(dataset=dataset, options=options))
    assert expected in str(raised.value)
    assert f"options of dataset {dataset}: " in raised.value.remedy


def test_a_misspelt_option_is_rejected_with_the_nearest_one() -> None:
    with pytest.raises(
        SettingsError,
        match=r"data\.options\.sample: no such setting\n  remedy: did you mean samples\? options of dataset synthetic: ",
    ):
        registry.validate(DataSettings(dataset="synthetic", options={"sample": 5}))


def test_an_option_is_rejected_for_a_dataset_without_options() -> None:
    with pytest.raises(
        SettingsError, match=r"data\.options\.crop: no such setting\n  remedy: options of dataset cifar10: none"
    ):
        registry.validate(DataSettings(dataset="cifar10", path=Path("x"), options={"crop": 4}))


@pytest.mark.parametrize("dataset", WITH_FILES)
def test_a_dataset_with_files_needs_a_path(dataset: str) -> None:
    assert registry.DATASETS.find(dataset).needs_path
    with pytest.raises(SettingsError, match=r"data\.path is not set"):
        registry.validate(DataSettings(dataset=dataset, options=NEEDED.get(dataset, {})))


@pytest.mark.parametrize("dataset", ["digits", "synthetic"])
def test_a_path_is_rejected_for_a_dataset_without_files(dataset: str) -> None:
    with pytest.raises(SettingsError, match=r"data\.path=x is set, but dataset"):
        registry.validate(DataSettings(dataset=dataset, path=Path("x")))


@pytest.mark.parametrize("dataset", WITH_FILES)
def test_missing_files_are_reported_without_loading_the_dataset(dataset: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere"):
        registry.check_files(DataSettings(dataset=dataset, path=tmp_path / "nowhere"))


@pytest.mark.parametrize(("dataset", "path"), [("digits", None), ("own_module:load", Path("nowhere"))])
def test_files_are_not_checked_for_datasets_without_known_files(dataset: str, path: Path | None) -> None:
    registry.check_files(DataSettings(dataset=dataset, path=path))


def test_an_empty_split_is_rejected() -> None:
    with pytest.raises(SettingsError) as raised:
        registry.load_dataset(DataSettings(dataset="digits", validation_fraction=0))
    assert "the validation split of dataset digits is empty at data.validation_fraction=0" in str(raised.value)


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with factories on the import path."""
    (tmp_path / "own_dataset.py").write_text(
        textwrap.dedent(
            """
            from training.data import registry

            def small(settings, *, samples):
                options = {"samples": samples, "evaluation_samples": 3}
                return registry.load_dataset(settings.model_copy(update={"dataset": "synthetic", "options": options}))

            def wrong(settings):
                return 1
            """
        )
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_dataset", raising=False)
    return "own_dataset"


def test_an_own_factory_gets_the_settings_and_its_options(own_module: str) -> None:
    bundle = registry.load_dataset(DataSettings(dataset=f"{own_module}:small", options={"samples": 20}))
    assert (len(bundle.train), len(bundle.test)) == (20, 3)


@pytest.mark.parametrize("dataset", ["no_such_package.module:load", "json.nothing:load", "json:", ":load"])
def test_an_invalid_import_path_is_rejected_on_validation(dataset: str) -> None:
    with pytest.raises(SettingsError, match=rf"data\.dataset={dataset} (cannot be imported|is not an import path)"):
        registry.validate(DataSettings(dataset=dataset))


@pytest.mark.parametrize(
    ("function", "options", "expected"),
    [
        ("absent", {}, "data.dataset=own_dataset:absent: module own_dataset has no attribute 'absent'"),
        ("small", {"size": 1}, "data.options={'size': 1}: the factory does not accept them"),
        ("wrong", {}, "data.dataset=own_dataset:wrong returned int"),
    ],
)
def test_an_unusable_own_factory_is_rejected(
    own_module: str, function: str, options: dict[str, OptionValue], expected: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        registry.load_dataset(DataSettings(dataset=f"{own_module}:{function}", options=options))
    assert expected in str(raised.value)


@pytest.mark.parametrize("document", ["README.md", "docs/DATASETS.md"])
def test_the_documents_name_every_dataset(document: str) -> None:
    text = (Path(__file__).parents[3] / document).read_text(encoding="utf-8")
    assert [name for name in registry.DATASETS.names if f"`{name}`" not in text] == []
