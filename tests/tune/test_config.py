"""The configuration of a search: what varies, and the settings that its trials share, from the same sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from training.config.schema import TrainingSettings
from training.errors import ExitStatus, SettingsError
from tune.config import SearchConfiguration
from tune.objectives import objectives_of
from tune.settings import AshaSettings, NoSchedulerSettings, PbtSettings, SearchSettings
from tune.space.axes import Choice, Constant, Continuous
from tune.trial.trainable import SearchTask

ROOT = Path(__file__).resolve().parents[2]
RATE = "optimizer.learning_rate: {log_uniform: [1e-4, 1e-1]}"


def write(folder: Path, text: str, name: str = "my.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def search_file(folder: Path, *lines: str, name: str = "my.yaml") -> Path:
    """A file whose axes begin in line 3."""
    return write(folder, "search:\n  space:\n" + "".join(f"    {line}\n" for line in lines), name)


def read(*files: Path, overrides: tuple[str, ...] = ()) -> SearchConfiguration:
    return SearchConfiguration.read(files, overrides, environment={})


def refusal(*files: Path, overrides: tuple[str, ...] = ()) -> str:
    with pytest.raises(SettingsError) as caught:
        read(*files, overrides=overrides).check()
    assert caught.value.status == ExitStatus.WRONG_INPUT
    return str(caught.value).replace(f"{files[0].parent}/", "")


def test_the_search_section_is_the_search_s_and_the_others_are_the_trials(tmp_path: Path) -> None:
    file = write(tmp_path, f"loop: {{epochs: 3}}\nsearch:\n  trials: 5\n  space:\n    {RATE}\n")
    found = read(file, overrides=("loop.global_batch=32", "search.seed=7"))
    assert (found.search.trials, found.search.seed) == (5, 7)
    assert found.space.axes == {"optimizer.learning_rate": Continuous(1e-4, 1e-1, is_log=True)}
    shared = found.settings()
    assert (shared.loop.epochs, shared.loop.global_batch) == (3, 32)
    trial = found.settings({"optimizer.learning_rate": 0.05})
    assert trial.optimizer.learning_rate == 0.05
    assert trial.loop == shared.loop
    found.check()
    by_all = SearchConfiguration.read([file], ["optimizer.learning_rate=0.3"], {"lr": "0.2"}, environment={})
    assert by_all.settings().optimizer.learning_rate == 0.3
    assert by_all.settings({"optimizer.learning_rate": 0.01}).optimizer.learning_rate == 0.01


def test_another_model_of_a_trial_drops_the_options_of_every_source(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "model: {name: simple_cnn, options: {width: 8}}\nsearch: {space: {model.name: {choice: [mlp, simple_cnn]}}}\n",
    )
    for overrides in ((), ("model.options.width=8",)):
        found = read(file, overrides=overrides)
        assert found.settings({"model.name": "mlp"}).model.options == {}
        assert found.settings({"model.name": "simple_cnn"}).model.options == {"width": 8}
        found.check()


def test_an_axis_of_a_later_source_replaces_an_earlier_one_as_a_whole(tmp_path: Path) -> None:
    first = search_file(tmp_path, RATE, "optimizer.momentum: {uniform: [0.5, 0.9], step: 0.1}")
    second = search_file(tmp_path, "optimizer.momentum: {choice: [0.1, 0.2]}", name="second.yaml")
    found = read(first, second)
    assert found.space.axes["optimizer.momentum"] == Choice((0.1, 0.2))
    assert list(found.space.axes) == ["optimizer.learning_rate", "optimizer.momentum"]


def test_set_replaces_an_axis(tmp_path: Path) -> None:
    file = search_file(tmp_path, RATE)
    for override, axis in {
        "={uniform: [1, 2]}": Continuous(1.0, 2.0),
        ".choice=[1, 2]": Choice((1, 2)),
        "=0.1": Constant(0.1),
    }.items():
        found = read(file, overrides=(f"search.space.optimizer.learning_rate{override}",))
        assert found.space.axes == {"optimizer.learning_rate": axis}


def test_axes_may_be_nested_by_section(tmp_path: Path) -> None:
    lines = (
        "optimizer: {learning_rate: {uniform: [0.1, 1]}, momentum: 0.9}",
        "model: {options: {width: {choice: [8, 16]}}}",
    )
    nested = read(search_file(tmp_path, *lines))
    assert nested.space.axes == {
        "optimizer.learning_rate": Continuous(0.1, 1.0),
        "optimizer.momentum": Constant(0.9),
        "model.options.width": Choice((8, 16)),
    }
    nested.check()


def test_a_wrong_search_section_is_refused_with_its_line(tmp_path: Path) -> None:
    """The texts follow `search:` and its space, or stand alone."""
    alone = {
        "loop: {epochs: 3}": "my.yaml: no search section",
        "search: hello": "my.yaml:1: search = hello: must be a mapping",
        "search: {space: [1]}": "my.yaml:1: search.space = [1]: must be a mapping",
        "search:\n  space:": "my.yaml:2: search.space = null: must be a mapping",
        "search: {trials: 3}": "my.yaml:1: search: space has no axis",
    }
    several = "objectives: {validation_loss: min, seconds: min}"
    settings = {
        "trials: 0": ".trials = 0: must be greater than 0",
        "trails: 3": ".trails: no such setting",
        "objectives: {loss: min}": ".objectives.loss = loss: must be a validation metric",
        "scheduler: {name: ash}": ".scheduler.name = ash: must be one of none, asha",
        "scheduler: {name: pbt, grace_epochs: 2}": (
            ".scheduler.grace_epochs: no such setting\n  remedy: it belongs to another scheduler"
        ),
        "scheduler: {name: bohb}": ".scheduler: name=bohb is not available",
        "algorithm: BOHB": ".algorithm = BOHB: bohb is not available",
        "gpus_per_worker: 0.001": ".gpus_per_worker = 0.001: must be greater than or equal to 0.01",
        "gpus_per_worker: 1.5": ".gpus_per_worker = 1.5: must be less than or equal to 1",
        "gpus_per_worker: true": ".gpus_per_worker = true: must not be true or false",
    }
    rules = {
        f"scheduler: {{name: asha}}\n  {several}": "scheduler=asha compares trials by one metric, got objectives=",
        f"algorithm: grid\n  {several}": "several objectives need algorithm=optuna, got algorithm=grid",
        "trials: 3\n  scheduler: {name: pbt}": "scheduler=pbt needs a population of at least 4, got trials=3",
    }
    space = "search:\n  space: {loop.epochs: 3}\n  "
    cases = alone | {f"{space}{text}": f"my.yaml:3: search{said}" for text, said in settings.items()}
    cases |= {f"{space}{text}": f"my.yaml:1: search: {said}" for text, said in rules.items()}
    for text, expected in cases.items():
        assert refusal(write(tmp_path, f"{text}\n")).startswith(expected), text


def test_a_wrong_axis_is_refused_with_its_source(tmp_path: Path) -> None:
    one_of = ": an axis needs exactly one of uniform, log_uniform, integer, choice"
    for axis, expected in {
        "{log_uniform: [1, 0.1]}": ": the lowest value 1.0 must be smaller than the highest, 0.1",
        "{log_uniform: [0, 0.1]}": ".log_uniform.0 = 0: must be greater than 0",
        "{uniform: [0.1]}": ".uniform = [0.1]: has too few values",
        "{uniform: [false, 1]}": ".uniform.0 = false: must not be true or false",
        "{uniform: 1}": ".uniform = 1: must be a list",
        "{uniform: [0.1, 1], choice: [1]}": one_of,
        "{step: 1}": f"{one_of}, value; got none",
        "{log_unifrom: [0.1, 1]}": ".log_unifrom: no such setting\n  remedy: did you mean log_uniform?",
        "{choice: null}": ": choice must not be null",
        "{choice: [0.1], step: 1}": ": step=1 belongs to uniform or integer, not to choice",
        "{uniform: [0.1, 1], log: true}": ": log=true belongs to integer, not to uniform",
        "{integer: [1, 9], step: 1.5}": ": step=1.5 of an integer axis must be a whole number",
        "{uniform: [0.1, 1], when: {loop.epochs: []}}": ": when.loop.epochs=[] never holds",
        "{uniform: [0.1, 1], when: {loop.epoch: 3}}": ".when.loop.epoch = 3: no such axis",
        "{uniform: [0.1, 1], when: {loop.epochs: 4}}": ".when.loop.epochs = 4: loop.epochs never has this value",
        "{uniform: [-1, 1]}": " = -1.0: must be greater than 0",
    }.items():
        file = search_file(tmp_path, "loop.epochs: 3", f"optimizer.learning_rate: {axis}")
        assert refusal(file).startswith(f"my.yaml:4: search.space.optimizer.learning_rate{expected}"), axis
    first = search_file(tmp_path, "loop.epochs: 3", RATE)
    second = search_file(tmp_path, "optimizer.learning_rate: {uniform: [-1, 1]}", name="second.yaml")
    assert refusal(first, second).startswith("second.yaml:3: search.space.optimizer.learning_rate = -1.0")
    for override in ("={uniform: [2, 1]}", ".uniform=[2, 1]"):
        message = refusal(first, overrides=(f"search.space.optimizer.learning_rate{override}",))
        assert message.startswith("--set: search.space.optimizer.learning_rate: the lowest value 2.0")
    grid = refusal(first, overrides=("search.algorithm=grid",))
    assert grid.startswith("my.yaml:4: search.space.optimizer.learning_rate: algorithm=grid tries every value")
    assert "remedy: list its values in choice, or write uniform with a step" in grid


def test_a_later_file_cannot_mend_a_section_that_is_no_mapping(tmp_path: Path) -> None:
    first = write(tmp_path, "search: hello\n")
    assert read(first, search_file(tmp_path, RATE, name="second.yaml")).search.trials == 16
    second = write(tmp_path, "search: hello\n", "second.yaml")
    assert refusal(search_file(tmp_path, RATE), second).startswith("second.yaml:1: search = hello")


def test_the_examples_of_the_guide_are_accepted_with_every_kind_of_axis(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "TUNING.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```yaml\n(.*?)^```", guide, flags=re.DOTALL | re.MULTILINE)
    found = [read(write(tmp_path, example)) for example in examples][-1]
    found.check()
    kinds = {next(iter(axis.model_fields_set - {"when", "step", "log"})) for axis in found.search.space.values()}
    assert kinds == {"uniform", "log_uniform", "integer", "choice", "value"}
    assert any(axis.when for axis in found.search.space.values())


def test_another_scheduler_of_a_later_source_drops_the_settings_of_the_first(tmp_path: Path) -> None:
    file = write(
        tmp_path, f"search:\n  scheduler: {{name: asha, grace_epochs: 2, brackets: 3}}\n  space:\n    {RATE}\n"
    )
    assert read(file, overrides=("search.scheduler.name=pbt",)).search.scheduler == PbtSettings(name="pbt")
    assert read(file, overrides=("search.scheduler={name: none}",)).search.scheduler == NoSchedulerSettings()
    same = read(file, overrides=("search.scheduler={name: asha, brackets: 1}",))
    assert same.search.scheduler == AshaSettings(name="asha", grace_epochs=2, brackets=1)
    assert read(file, overrides=("search.scheduler.brackets=2",)).search.scheduler == AshaSettings(
        name="asha", grace_epochs=2, brackets=2
    )


def test_a_later_source_replaces_the_objectives_as_a_whole(tmp_path: Path) -> None:
    file = write(tmp_path, f"search:\n  objectives: {{validation_loss: min}}\n  space:\n    {RATE}\n")
    for override in ("={validation_accuracy: max}", ".validation_accuracy=max"):
        found = read(file, overrides=(f"search.objectives{override}",))
        assert found.search.objectives == {"validation_accuracy": "max"}
    assert read(file, overrides=("search.trials=3",)).search.objectives == {"validation_loss": "min"}


def test_a_trial_costs_what_its_workers_do(tmp_path: Path) -> None:
    """It knows the price of its workers where the search does."""
    for lines, price in (
        ("search:\n  stop: {dollars_per_worker_hour: 0.5}", 1.0),
        ("search:\n  trials: 16", None),
        ("run: {dollars_per_hour: 3}\nsearch:\n  trials: 16", 3.0),
    ):
        found = read(write(tmp_path, f"scale: {{workers: 2}}\n{lines}\n  space: {{{RATE}}}\n"))
        task = SearchTask(
            directory=tmp_path,
            configuration=found,
            objectives={"validation_loss": "min"},
            code=None,
            is_local=True,
            is_continued=False,
        )
        assert task.settings("t001", {"optimizer.learning_rate": 0.01}).run.dollars_per_hour == price


def test_the_metric_of_an_objective_of_your_own_is_named_with_its_direction() -> None:
    best = {"checkpoint": {"best_metric": "validation_score"}, "objective": {"name": "own:Score"}}
    settings, space = TrainingSettings.model_validate(best), {"optimizer.learning_rate": {"log_uniform": [1e-4, 1e-1]}}
    with pytest.raises(SettingsError, match=r"checkpoint\.best_metric=validation_score ranks") as caught:
        objectives_of(SearchSettings.model_validate({"space": space}), settings)
    assert "search.objectives={validation_score: max}" in caught.value.remedy
    named = SearchSettings.model_validate({"space": space, "objectives": {"validation_score": "max"}})
    assert objectives_of(named, settings) == {"validation_score": "max"}
