"""The commands of a search, and those that it prints: refusals are quick, and a report knows whether its search runs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml

from infra.spec.cluster_names import LONGEST_JOB_NAME
from tests.makefile import command
from tests.training.cli.command import Answer, ask
from tests.tune.sample_search import CODE, NAME, SampleSearch
from training import new_project
from training.environment import RUN_ARGUMENTS_VARIABLE
from training.errors import ExitStatus
from tune.cli import main
from tune.commands import train_command
from tune.folder import SearchFolder


def tune(folder: Path, *arguments: str) -> Answer:
    return ask(*arguments, cwd=folder, program="tune.cli")


def test_what_cannot_be_searched_is_refused_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    for override, status in (("search.space.optimizer.lr=3", 2), ("scale.cpus_per_worker=4096", 3)):
        answer = tune(tmp_path, "search", "--set", override)
        assert answer.status == status, answer.err
        assert override.partition(".")[0] in answer.err
        assert "Traceback" not in answer.err
        assert answer.heavy == frozenset()
    assert not (tmp_path / ".local/searches").exists()


def test_a_search_that_does_not_exist_is_refused_with_the_nearest_and_opened_by_its_folder(tmp_path: Path) -> None:
    for program in ("status", "report"):
        nothing = tune(tmp_path, program)
        assert (nothing.status, nothing.heavy) == (2, frozenset())
        assert "no searches under .local/searches\n  remedy: start one: make tune" in nothing.err
    SampleSearch(trials=1).write(tmp_path / ".local/searches/first")
    unknown = tune(tmp_path, "status", "frist")
    assert unknown.status == 2
    assert "search frist: no such search" in unknown.err
    assert "did you mean first?" in unknown.err
    SampleSearch(trials=1).write(tmp_path / "disk/second")
    missing = tune(tmp_path, "status", "second")
    assert missing.status == 2
    assert "if it is elsewhere, name its folder: NAME=FOLDER/second" in missing.err
    assert "1 of 1 trial ended" in tune(tmp_path, "status", "disk/second").out
    assert "1 of 1 trial ended" in tune(tmp_path / "disk/second", "status", "./").out


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
    (project / "tune.yaml").unlink()
    told = tune(tmp_path, "search", "--code", str(project))
    assert told.status == ExitStatus.WRONG_INPUT
    assert "train.yaml: no search section" in told.err
    assert "in tune.yaml of a code folder" in told.err


def test_the_command_of_the_best_trial_reads_its_settings_and_the_code_that_the_search_kept(tmp_path: Path) -> None:
    search = SampleSearch(trials=4, epochs=3)
    words = shlex.split(train_command(search.history, tmp_path))
    name = f"{NAME}-{search.history.ranked()[0].id}"
    assert words[0] == "make"
    planned = command(*words[1:])
    assert planned == ["-m", "training", "train", "--config", str(tmp_path / "best.yaml"), "--name", name]
    folder = tmp_path / "it's $HOME"
    with_code = shlex.split(train_command(SampleSearch(trials=4, epochs=3, code=True).history, folder))
    planned = command(*[word for word in with_code[1:] if not word.startswith("CONFIG=")])
    assert planned[planned.index("--code") + 1] == str(folder / CODE["archive"])


def test_the_command_of_a_search_on_a_cluster_takes_copies_of_its_files_and_a_valid_name() -> None:
    search = SampleSearch(trials=1, epochs=2, name="a" * LONGEST_JOB_NAME, code=True)
    words = shlex.split(train_command(search.history, Path("/mnt/runs/searches") / ("a" * LONGEST_JOB_NAME)))
    assert words[:4] == ["make", "train", "ENV=…", "CONFIG=best.yaml"]
    assert words[4:] == [f"NAME={'a' * (LONGEST_JOB_NAME - 5)}-t001", "CODE=a.tar.gz"]
    long = SampleSearch(trials=1, epochs=2, name="a" * 63)
    assert f"NAME={'a' * 58}-t001" in shlex.split(train_command(long.history, Path("/runs")))


def test_a_search_is_continued_by_what_its_user_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = SearchFolder(tmp_path / "my search")
    monkeypatch.delenv(RUN_ARGUMENTS_VARIABLE, raising=False)
    assert shlex.split(folder.command) == ["make", "tune", f"NAME={tmp_path}/my search"]
    monkeypatch.setenv(RUN_ARGUMENTS_VARIABLE, "ENV=prod JOB=first TEAM=research")
    assert folder.command == "make tune ENV=prod NAME=first TEAM=research"
