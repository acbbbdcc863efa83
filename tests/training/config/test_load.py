"""Settings come from files, environment, flags and `--set`, in that order of precedence."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.config.load import load_settings, render
from training.config.schema import ModelSettings, RunSettings, TrainingSettings
from training.config.sources import FLAG_KEYS, shipped_names
from training.errors import ExitStatus, SettingsError


def write(folder: Path, text: str, name: str = "my.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def message(*arguments: object, **keywords: object) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(*arguments, **{"environment": {}, **keywords})  # type: ignore[arg-type]
    return str(caught.value)


def test_without_sources_the_defaults_apply() -> None:
    assert load_settings(environment={}) == TrainingSettings()


def test_the_shipped_default_is_the_schema_s_default() -> None:
    assert load_settings(["digits"], environment={}) == TrainingSettings()


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_configuration_loads_and_survives_rendering(name: str, tmp_path: Path) -> None:
    settings = load_settings([name], environment={})
    assert load_settings([write(tmp_path, render(settings))], environment={}) == settings


def test_each_source_overrides_the_one_before_it(tmp_path: Path) -> None:
    file = write(tmp_path, "run: {directory: file}\ntracking: {experiment: file}\nloop: {epochs: 1}\n")
    second = write(tmp_path, "loop: {epochs: 2, accumulation: 2}\n", "second.yaml")
    environment = {"RTP_RUN_DIRECTORY": "environment", "RTP_EXPERIMENT": "environment"}

    def epochs_and_experiment(settings: TrainingSettings) -> tuple[int, str, str]:
        return settings.loop.epochs, settings.tracking.experiment, str(settings.run.directory)

    assert epochs_and_experiment(load_settings([file], environment={})) == (1, "file", "file")
    assert load_settings([file, second], environment={}).loop.epochs == 2
    assert epochs_and_experiment(load_settings([file], environment=environment)) == (1, "environment", "environment")
    flags = {"epochs": "3"}
    overrides = ["loop.epochs=4", "tracking.experiment=set"]
    assert load_settings([file], flags=flags, environment=environment).loop.epochs == 3
    assert epochs_and_experiment(load_settings([file], overrides, flags, environment)) == (4, "set", "environment")


def test_a_later_set_overrides_an_earlier_one() -> None:
    assert load_settings(overrides=["loop.epochs=4", "loop.epochs=5"], environment={}).loop.epochs == 5


def test_set_takes_yaml() -> None:
    overrides = ["optimizer.betas=[0.8, 0.99]", "loop.clip_norm=", "optimizer.learning_rate=1e-3", "scale.gpu=true"]
    settings = load_settings(overrides=overrides, environment={})
    assert settings.optimizer.betas == (0.8, 0.99)
    assert settings.loop.clip_norm is None
    assert settings.optimizer.learning_rate == 1e-3
    assert settings.scale.gpu


def test_options_are_merged_key_by_key(tmp_path: Path) -> None:
    file = write(tmp_path, "model: {name: mlp, options: {hidden: [8], dropout: 0.5}}\n")
    settings = load_settings([file], ["model.options.dropout=0.1"], environment={})
    assert settings.model.options == {"hidden": [8], "dropout": 0.1}


def test_a_file_s_options_do_not_apply_to_another_model(tmp_path: Path) -> None:
    file = write(tmp_path, "model: {name: mlp, options: {hidden: [8]}}\n")
    assert load_settings([file], flags={"model": "simple_cnn"}, environment={}).model.options == {}


def test_a_file_s_path_does_not_apply_to_another_dataset(tmp_path: Path) -> None:
    file = write(tmp_path, "data: {dataset: cifar10, path: somewhere, augment: false}\n")
    data = load_settings([file], flags={"dataset": "digits"}, environment={}).data
    assert (data.path, data.augment) == (None, False)


def test_naming_the_file_s_own_model_keeps_its_options(tmp_path: Path) -> None:
    file = write(tmp_path, "model: {name: mlp, options: {hidden: [8]}}\n")
    assert load_settings([file], flags={"model": "mlp"}, environment={}).model.options == {"hidden": [8]}


def test_options_and_model_of_one_command_line_stay_together() -> None:
    settings = load_settings(overrides=["model.options.hidden=[8]"], flags={"model": "mlp"}, environment={})
    assert settings.model.options == {"hidden": [8]}


def test_the_plain_launcher_defaults_to_one_worker() -> None:
    assert load_settings(flags={"launcher": "plain"}, environment={}).scale.workers == 1
    assert "workers=2" in message(flags={"launcher": "plain", "num_workers": "2"})


@pytest.mark.parametrize(("typed", "uses_gpu"), [("0", False), ("1", True)])
def test_gpus_per_worker_sets_use_gpu(typed: str, uses_gpu: bool) -> None:  # noqa: FBT001
    assert load_settings(flags={"gpus_per_worker": typed}, environment={}).scale.gpu is uses_gpu


def test_several_gpus_per_worker_are_refused_under_ddp_with_the_commands_that_use_them() -> None:
    text = message(flags={"num_workers": "4", "gpus_per_worker": "2", "use_gpu": True})
    assert "under strategy.name=ddp a rank has the whole model and uses one GPU" in text
    assert "--use-gpu --num-workers 8" in text
    assert "strategy.name=pipeline or hsdp" in text


@pytest.mark.parametrize(
    ("strategy", "workers", "key", "value"),
    [
        ("pipeline", 4, "stages", 2),
        ("hsdp", 4, "replicas", 4),
        ("fsdp2", 1, "replicas", 1),
        ("zero3", 1, "replicas", 1),
    ],
)
def test_a_worker_of_two_gpus_is_a_group_of_two_ranks(strategy: str, workers: int, key: str, value: int) -> None:
    settings = load_settings(
        overrides=[f"strategy.name={strategy}", "loop.accumulation=2"],
        flags={"num_workers": str(workers), "gpus_per_worker": "2"},
        environment={},
    )
    assert settings.scale.gpu
    assert settings.scale.workers == 2 * workers
    assert getattr(settings.strategy, key) == value


@pytest.mark.parametrize(
    ("strategy", "flags", "expected"),
    [
        ("name=fsdp2", {"num_workers": "4"}, "strategy.name=hsdp makes 4 of 2"),
        ("name=zero3", {"num_workers": "4"}, "strategy.name=hsdp makes 4 of 2"),
        ("name=hsdp", {"num_workers": "1"}, "strategy.name=fsdp2 makes 1 of 2"),
        ("name=pipeline", {}, "--num-workers is missing"),
        ("stages=4", {"num_workers": "2"}, "contradicts strategy.stages=4: it is strategy.stages=2"),
    ],
)
def test_groups_that_the_strategy_cannot_make_are_refused(
    strategy: str, flags: dict[str, str | bool | None], expected: str
) -> None:
    overrides = ["strategy.name=pipeline", f"strategy.{strategy}"]
    assert expected in message(overrides=overrides, flags={**flags, "gpus_per_worker": "2"})


def test_gpus_per_worker_must_not_contradict_use_gpu() -> None:
    assert "--gpus-per-worker 0 contradicts --use-gpu" in message(flags={"gpus_per_worker": "0", "use_gpu": True})
    assert "contradicts --no-use-gpu" in message(flags={"gpus_per_worker": "1", "use_gpu": False})


def test_a_flag_that_is_none_was_not_given() -> None:
    nothing: dict[str, str | bool | None] = dict.fromkeys(FLAG_KEYS)
    assert load_settings(flags=nothing, environment={}) == TrainingSettings()


def test_an_unknown_flag_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="epoch"):
        load_settings(flags={"epoch": "3"}, environment={})


def test_an_empty_environment_variable_is_ignored() -> None:
    assert load_settings(environment={"RTP_TRACKING_URI": ""}).tracking.uri is None


NAMES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,62}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@given(name=st.none() | NAMES, experiment=TEXTS, seed=st.integers(0, 2**63 - 1))
def test_any_settings_survive_rendering(
    tmp_path_factory: pytest.TempPathFactory, name: str | None, experiment: str, seed: int
) -> None:
    settings = TrainingSettings(
        run=RunSettings(name=name, seed=seed),
        model=ModelSettings(name="mlp", options={"hidden": [seed % 7 + 1], "dropout": 0.25}),
        tracking=TrainingSettings().tracking.model_copy(update={"experiment": experiment}),
    )
    folder = tmp_path_factory.mktemp("rendered", numbered=True)
    assert load_settings([write(folder, render(settings))], environment={}) == settings


def test_rendering_describes_every_key() -> None:
    text = render(TrainingSettings())
    assert "  # Passes over the training split.\n  epochs: 10\n" in text


def test_an_invalid_setting_exits_with_status_2() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(["digitz"], environment={})
    assert caught.value.status == ExitStatus.WRONG_INPUT
