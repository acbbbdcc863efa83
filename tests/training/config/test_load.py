"""Settings come from files, environment, flags and `--set`, in that order of precedence."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.config.test_refusals import refusal
from training.config.load import load_settings, render
from training.config.schema import ModelSettings, RunSettings, TrainingSettings
from training.config.sources import FLAG_KEYS, shipped_names


def write(folder: Path, text: str, name: str = "my.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_shipped_default_and_no_source_are_the_schema_s_default() -> None:
    nothing: dict[str, str | bool | None] = dict.fromkeys(FLAG_KEYS)
    assert load_settings(["digits"], environment={}) == TrainingSettings()
    assert load_settings(flags=nothing, environment={"RTP_TRACKING_URI": ""}) == TrainingSettings()
    assert "  # Passes over the training split.\n  epochs: 10\n" in render(TrainingSettings())


def test_shipped_configurations_load_and_survive_rendering(tmp_path: Path) -> None:
    for name in shipped_names():
        settings = load_settings([name], environment={})
        assert load_settings([write(tmp_path, render(settings))], environment={}) == settings, name


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


def test_set_takes_yaml() -> None:
    overrides = ["optimizer.betas=[0.8, 0.99]", "loop.clip_norm=", "optimizer.learning_rate=1e-3", "scale.gpu=true"]
    overrides += ["loop.epochs=4", "loop.epochs=5"]
    settings = load_settings(overrides=overrides, environment={})
    assert settings.optimizer.betas == (0.8, 0.99)
    assert settings.loop.clip_norm is None
    assert settings.optimizer.learning_rate == 1e-3
    assert settings.scale.gpu
    assert settings.loop.epochs == 5


def test_options_are_merged_key_by_key(tmp_path: Path) -> None:
    file = write(tmp_path, "model: {name: mlp, options: {hidden: [8], dropout: 0.5}}\n")
    settings = load_settings([file], ["model.options.dropout=0.1"], environment={})
    assert settings.model.options == {"hidden": [8], "dropout": 0.1}


def test_a_file_s_options_apply_to_its_own_model_and_its_path_to_its_dataset(tmp_path: Path) -> None:
    file = write(tmp_path, "model: {name: mlp, options: {hidden: [8]}}\n")
    for sources, flag, hidden in (([file], "mlp", [8]), ([file], "simple_cnn", None)):
        options = load_settings(sources, flags={"model": flag}, environment={}).model.options
        assert options.get("hidden") == hidden
    settings = load_settings(overrides=["model.options.hidden=[8]"], flags={"model": "mlp"}, environment={})
    assert settings.model.options == {"hidden": [8]}
    file = write(tmp_path, "data: {dataset: cifar10, path: somewhere, augment: false}\n")
    data = load_settings([file], flags={"dataset": "digits"}, environment={}).data
    assert (data.path, data.augment) == (None, False)


def test_the_plain_launcher_defaults_to_one_worker() -> None:
    assert load_settings(flags={"launcher": "plain"}, environment={}).scale.workers == 1
    assert "workers=2" in refusal(flags={"launcher": "plain", "num_workers": "2"})


def test_gpus_per_worker_sets_use_gpu_and_must_not_contradict_it() -> None:
    for typed, uses_gpu in (("0", False), ("1", True)):
        assert load_settings(flags={"gpus_per_worker": typed}, environment={}).scale.gpu is uses_gpu
    assert "--gpus-per-worker 0 contradicts --use-gpu" in refusal(flags={"gpus_per_worker": "0", "use_gpu": True})
    assert "contradicts --no-use-gpu" in refusal(flags={"gpus_per_worker": "1", "use_gpu": False})


def test_several_gpus_per_worker_are_refused_under_ddp_with_the_commands_that_use_them() -> None:
    text = refusal(flags={"num_workers": "4", "gpus_per_worker": "2", "use_gpu": True})
    assert "under strategy.name=ddp a rank has the whole model and uses one GPU" in text
    assert "--use-gpu --num-workers 8" in text
    assert "strategy.name=pipeline or hsdp" in text


def test_a_worker_of_two_gpus_is_a_group_of_two_ranks() -> None:
    for strategy, workers, key, value in (
        ("pipeline", 4, "stages", 2),
        ("hsdp", 4, "replicas", 4),
        ("fsdp2", 1, "replicas", 1),
        ("zero3", 1, "replicas", 1),
    ):
        overrides = [f"strategy.name={strategy}", "loop.accumulation=2"]
        flags: dict[str, str | bool | None] = {"num_workers": str(workers), "gpus_per_worker": "2"}
        settings = load_settings(overrides=overrides, flags=flags, environment={})
        assert settings.scale.gpu
        assert settings.scale.workers == 2 * workers
        assert getattr(settings.strategy, key) == value, strategy


def test_groups_that_the_strategy_cannot_make_are_refused() -> None:
    for strategy, workers, expected in (
        ("name=fsdp2", "4", "strategy.name=hsdp makes 4 of 2"),
        ("name=zero3", "4", "strategy.name=hsdp makes 4 of 2"),
        ("name=hsdp", "1", "strategy.name=fsdp2 makes 1 of 2"),
        ("name=pipeline", None, "--num-workers is missing"),
        ("stages=4", "2", "contradicts strategy.stages=4: it is strategy.stages=2"),
    ):
        overrides = ["strategy.name=pipeline", f"strategy.{strategy}"]
        assert expected in refusal(overrides=overrides, flags={"num_workers": workers, "gpus_per_worker": "2"})


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
