"""Errors of invalid settings name origin, key, value, rule and the nearest valid name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.config.refused import assert_refused
from training.config.load import load_settings
from training.config.schema import TrainingSettings
from training.errors import SettingsError

PRINT_CONFIG = "python -m training train --print-config shows every key with its meaning"


def refusal(
    *,
    files: list[str | Path] | None = None,
    overrides: list[str] | None = None,
    flags: dict[str, str | bool | None] | None = None,
    environment: dict[str, str] | None = None,
) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(files or [], overrides or [], flags, environment or {})
    return str(caught.value)


def test_an_invalid_file_is_refused_with_the_line_to_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remedy, options = "no such setting\n  remedy: did you mean", "model: {options: {width: {a: 1}}}\n"
    cases = {
        "loop:\n  epochs: -3\n": "my.yaml:2: loop.epochs = -3: must be greater than 0",
        "optimizer: {betas: [0.9]}\n": "my.yaml:1: optimizer.betas = [0.9]: has too few values",
        "optimizer: {betas: 0.9}\n": "my.yaml:1: optimizer.betas = 0.9: must be a list",
        "optimizer: {betas: [0.9, false]}\n": "my.yaml:1: optimizer.betas.1 = false: must not be true or false",
        "loop:\n  epochs: many\n": "my.yaml:2: loop.epochs = many: must be a valid integer",
        "\nloop:\n  epoch: 3\n": f"my.yaml:3: loop.epoch: {remedy} epochs?",
        "optimiser: {name: sgd}\n": f"my.yaml:1: optimiser: {remedy} optimizer?",
        "loop: {batch: 8}\n": f"loop.batch: {remedy} loop.global_batch?",
        "loop: {zzz: 8}\n": "loop.zzz: no such setting\n  remedy: one of epochs, max_steps",
        "epochs: 3\n": f"epochs: {remedy} loop.epochs?",
        "optimizer: {name: adamm}\n": "must be one of sgd, adam, adamw\n  remedy: did you mean adam?",
        "optimizer: {betas: [0.9, 1.5]}\n": "optimizer.betas.1 = 1.5: must be less than 1",
        options: "model.options.width = {a: 1}: must be a valid boolean or a valid integer",
        "loop: 3\n": "my.yaml:1: loop = 3: must be a mapping with keys among: accumulation",
        "model: {options: {widht: 3}}\n": f"my.yaml:1: model.options.widht: {remedy} width?",
        "data: {dataset: cifar10}\n": "data.path is not set",
        "data: {dataset: my.module:make}\n": "data.dataset=my.module:make",
        "precision: {mode: fp16}\n": "precision.mode=fp16 needs scale.gpu=true … precision.mode from my.yaml:1",
        "- loop\n": "my.yaml: is a list, not a mapping",
    }
    monkeypatch.chdir(tmp_path)
    for text, words in cases.items():
        Path("my.yaml").write_text(text, encoding="utf-8")
        refused = refusal(files=["my.yaml"])
        assert [part for part in words.split(" … ") if part not in refused] == [], refused


def test_an_invalid_override_is_refused() -> None:
    most, timeout = "must be less than or equal to 604800", "scale.collective_timeout"
    assert_refused(
        {
            "loop.epochs": "--set loop.epochs: not of the form section.key=value",
            "=3": "--set =3: not of the form section.key=value",
            "loop.epochs=[1": "--set loop.epochs:1:3: not valid YAML",
            f"{timeout}=1e300": f"--set: {timeout} = 1e+300: {most}",
            "run.name=MyRun": "--set: run.name = MyRun: must be at most 63 lower-case letters",
            "data.path=/x": "--set: data.path=/x is set, but dataset digits has no files",
        }
    )


def test_wrong_settings_are_named_at_once_each_with_its_remedy() -> None:
    assert refusal(overrides=["loop.epoch=2", "scale.worker=1", "run.seed=-1"]).splitlines() == [
        "3 wrong settings",
        "  --set: run.seed = -1: must be greater than or equal to 0",
        "  --set: loop.epoch: no such setting",
        "    remedy: did you mean epochs?",
        "  --set: scale.worker: no such setting",
        "    remedy: did you mean workers?",
        f"  remedy: {PRINT_CONFIG}",
    ]
    assert refusal(overrides=["loop.epoch=2"]).splitlines() == [
        "--set: loop.epoch: no such setting",
        f"  remedy: did you mean epochs? {PRINT_CONFIG}",
    ]


def test_an_invalid_flag_is_named_as_it_was_typed() -> None:
    assert "--epochs: loop.epochs = '3.5': must be a valid integer" in refusal(flags={"epochs": "3.5"})
    assert "--lr: optimizer.learning_rate = fast: must be a valid number" in refusal(flags={"lr": "fast"})
    for value in ("inf", "-inf", "nan", "Infinity", "1e400"):
        rule = "must be a finite number"
        assert f"--lr: optimizer.learning_rate = {value}: {rule}" in refusal(flags={"lr": value}).replace("'", "")


SECTIONS = {name: info.annotation for name, info in TrainingSettings.model_fields.items()}
EVERY_KEY = [f"{name}.{key}" for name, section in SECTIONS.items() for key in section.model_fields]  # type: ignore[union-attr]


def test_no_setting_is_infinite_or_not_a_number() -> None:
    values = (".inf", "-.Inf", ".nan", "1e400")
    for number, key in enumerate([*EVERY_KEY, "model.options.dropout", "data.options.shift"]):
        assert key in refusal(overrides=[f"{key}={values[number % len(values)]}"])
    for value in values:
        assert "optimizer.betas.0" in refusal(overrides=[f"optimizer.betas=[{value}, 0.9]"])
        assert "optimizer.learning_rate" in refusal(overrides=[f"optimizer.learning_rate={value}"])
    own = ["model.name=tests.training.faults.models:x", "model.options.scale=.inf"]
    assert "model.options.scale = .inf" in refusal(overrides=own)


def test_an_indivisible_batch_is_refused_with_the_nearest_valid_one() -> None:
    refused = refusal(flags={"batch": "63", "num_workers": "4"})
    assert "4 x 1 = 4; nearest: 60, or scale.workers=3" in refused
    assert "loop.global_batch from --batch" in refused
    assert "scale.workers from --num-workers" in refused


def test_only_a_valid_tracking_address_is_accepted() -> None:
    for uri in ("localhost", "htp://host", "http://", "http://host:port", "http://[::1"):
        assert f"RTP_TRACKING_URI: tracking.uri={uri} is not a" in refusal(environment={"RTP_TRACKING_URI": uri})
    hosts = ("http://host:5000", "https://host/path")
    for uri in (*hosts, "sqlite:///a.db", "postgresql+psycopg2://u:p@h/d", "databricks"):
        assert load_settings(environment={"RTP_TRACKING_URI": uri}).tracking.uri == uri


def test_files_that_cannot_be_read_are_refused_by_name(tmp_path: Path) -> None:
    refused = refusal(files=["digit"])
    assert "--config digit: no such file" in refused
    assert "did you mean digits?" in refused
    assert f"--config {tmp_path / 'no.yaml'}: no such file" in refusal(files=[tmp_path / "no.yaml"])
    path = tmp_path / "my.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    assert f"{path}: cannot be read" in refusal(files=[path])


def test_a_search_is_not_trained(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text("loop: {epochs: 3}\nsearch:\n  trials: 3\n")
    assert refusal(files=[path]) == (
        f"{path}:2: search: is a section of a search, not of a run\n"
        "  remedy: make tune CONFIG=… searches; to train the settings that its trials share, remove the section"
    )
    assert "--set: search: is a section of a search" in refusal(overrides=["search.trials=3"])
