"""The commands of a search: refusals are quick, and a report knows whether its search runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.training.cli.command import Answer, ask
from tests.tune.sample_search import SampleSearch
from training import new_project
from training.errors import ExitStatus
from tune.cli import main
from tune.folder import SearchFolder

AXIS = "search.space.optimizer.learning_rate"


def tune(folder: Path, *arguments: str) -> Answer:
    return ask(*arguments, cwd=folder, program="tune.cli")


@pytest.mark.parametrize(
    ("arguments", "status", "parts"),
    [
        (("--set", "search.trial=3"), 2, ("search.trial: no such setting", "did you mean trials?")),
        (
            ("--set", "search.space.optimizer.lr=3"),
            2,
            ("search.space.optimizer.lr: no such setting", "did you mean optimizer."),
        ),
        (("--set", f"{AXIS}={{uniform: [0, 2], step: 1}}"), 2, (AXIS, "= 0.0: must be greater than 0")),
        (("--set", "search.scheduler.grace_epochs=27"), 2, ("grace_epochs=27", "at most 26")),
        (("--set", "search.scheduler={name: pb2}", "--epochs", "2"), 2, ("every_epochs=2", "at most 1")),
        (("--set", "search.algorithm=grid"), 2, ("search.space", "step")),
        (("--set", "search.stop.dollars=3"), 2, ("dollars=3", "set search.stop.dollars_per_worker_hour")),
        (("--config", "digits", "--config", "simple_cnn"), 2, ("simple_cnn",)),
        (("--launcher", "torchrun"), 2, ("scale.launcher=torchrun", "ray")),
        (("--set", "scale.cpus_per_worker=4096"), 3, ("a trial never fits", "4,096 CPUs")),
        (("--set", "search.concurrency=4096", "--set", "search.trials=4096"), 3, ("4,096 trials", "fits")),
        (("--dataset", "cifar10", "--data-path", "/nowhere"), 3, ("/nowhere",)),
    ],
)
def test_what_cannot_be_searched_is_refused_before_anything_starts(
    tmp_path: Path, arguments: tuple[str, ...], status: int, parts: tuple[str, ...]
) -> None:
    answer = tune(tmp_path, "search", *arguments)
    assert answer.status == status, answer.err
    for part in parts:
        assert part in answer.err
    assert "Traceback" not in answer.err
    assert answer.heavy == frozenset()
    assert not (tmp_path / ".local/searches").exists()


@pytest.mark.parametrize("command", ["status", "report"])
def test_a_search_that_does_not_exist_is_refused(tmp_path: Path, command: str) -> None:
    nothing = tune(tmp_path, command)
    assert (nothing.status, nothing.heavy) == (2, frozenset())
    assert "no searches under .local/searches\n  remedy: start one: make tune" in nothing.err
    SampleSearch(trials=1).write(tmp_path / ".local/searches/first")
    unknown = tune(tmp_path, command, "frist")
    assert unknown.status == 2
    assert "search frist: no such search" in unknown.err
    assert "did you mean first?" in unknown.err


def test_a_search_that_is_not_under_the_root_is_opened_by_its_folder(tmp_path: Path) -> None:
    SampleSearch(trials=1).write(tmp_path / "disk/first")
    missing = tune(tmp_path, "status", "first")
    assert missing.status == 2
    assert "no such search under .local/searches" in missing.err
    assert "if it is elsewhere, name its folder: NAME=FOLDER/first" in missing.err
    assert "1 of 1 trial ended" in tune(tmp_path, "status", "disk/first").out
    assert "1 of 1 trial ended" in tune(tmp_path / "disk/first", "status", "./").out


def test_a_name_with_a_slash_is_the_folder_of_the_search(tmp_path: Path) -> None:
    """A new one, and one to continue with the settings that it was begun with."""
    new = tune(tmp_path, "search", "--name", "a disk: 1/first", "--print-config")
    assert new.status == 0, new.err
    assert "\n  name: first\n" in new.out
    assert "\n  directory: 'a disk: 1'\n" in new.out
    (tmp_path / "a disk: 1/first").mkdir(parents=True)
    (tmp_path / "a disk: 1/first/search.yaml").write_text(new.out.replace("trials: 16", "trials: 17"), encoding="utf-8")
    assert "\n  trials: 17\n" in tune(tmp_path, "search", "--name", "./a disk: 1/first/", "--print-config").out
    other = tmp_path / "other"
    other.mkdir()
    assert "\n  trials: 17\n" in tune(other, "search", "--name", f"{tmp_path}/a disk: 1/first", "--print-config").out


def test_a_report_says_whether_a_driver_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = SearchFolder(SampleSearch(trials=4, until=40).write(tmp_path / "first"))
    with folder.driving():
        assert main(["report", "first", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{folder.report}\n"
    assert '<span class="status running">' in folder.report.read_text(encoding="utf-8")
    assert main(["report", "first", "--root", str(tmp_path)]) == 0
    assert '<span class="status killed">' in folder.report.read_text(encoding="utf-8")


def test_a_new_project_is_searched_with_its_own_model(tmp_path: Path) -> None:
    """Its `tune.yaml` says what varies; everything else is that of `train.yaml`."""
    project = new_project.create(str(tmp_path / "tumour-cost")).folder
    said = tune(tmp_path, "search", "--code", str(project), "--print-config")
    assert said.status == 0, said.err
    printed = yaml.safe_load(said.out)
    assert printed["model"]["name"] == "tumour_cost.model:Net"
    assert list(printed["search"]["space"]) == [
        "optimizer.learning_rate",
        "model.options.width",
        "model.options.dropout",
    ]


def test_a_project_that_does_not_say_what_varies_is_told_where_to(tmp_path: Path) -> None:
    project = new_project.create(str(tmp_path / "tumour-cost")).folder
    (project / "tune.yaml").unlink()
    said = tune(tmp_path, "search", "--code", str(project))
    assert said.status == ExitStatus.WRONG_INPUT
    assert "train.yaml: no search section" in said.err
    assert "in tune.yaml of a code folder" in said.err
