"""What a search refuses before it starts anything, by the whole command."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from tests.tune.search_driver import NAME, search_of
from training import preflight
from training.config.schema import TrainingSettings
from training.errors import ExitStatus
from tune.cli import main
from tune.config import SearchConfiguration
from tune.events import SearchEnded, SearchLogWriter, SearchStarted
from tune.folder import SearchFolder
from tune.resources import ACTOR_BYTES, RANK_BYTES


def command(root: Path, *overrides: str) -> list[str]:
    """The command of a search under a folder."""
    config = root / "search.yaml"
    config.write_text(yaml.safe_dump(search_of(epochs=2, algorithm="random", trials=2)), encoding="utf-8")
    sets = [f"search.directory={root / 'searches'}", *overrides]
    return ["search", "--name", NAME, "--config", str(config), *(part for one in sets for part in ("--set", one))]


def test_a_search_that_cannot_run_is_refused_with_a_remedy_and_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fits = f"--set scale.workers=1 --set scale.cpus_per_worker={len(os.sched_getaffinity(0))} fits"
    overrides: dict[str, tuple[ExitStatus, str, str]] = {
        "scale.cpus_per_worker=4096": (
            ExitStatus.REFUSED,
            "a trial never fits: it needs 1 worker with 4,096 CPUs",
            f"remedy: {fits}",
        ),
        "scale.workers=1-2": (ExitStatus.WRONG_INPUT, "scale.workers=1-2: ", "remedy: use scale.workers=1 or 2"),
        "search.objectives.validation_acuracy=max": (
            ExitStatus.WRONG_INPUT,
            "search.objectives.validation_acuracy: objective classification reports no such metric",
            "remedy: did you mean validation_accuracy?",
        ),
        "search.directory=/proc/searches": (
            ExitStatus.REFUSED,
            "search.directory=/proc/searches cannot be written",
            "remedy: choose another with --set search.directory=FOLDER",
        ),
    }
    for override, (status, *parts) in overrides.items():
        assert main(command(tmp_path, override)) == status, override
        said = capsys.readouterr().err
        assert [part for part in parts if part not in said] == [], said
        assert not (tmp_path / "searches").exists()
    assert main([*command(tmp_path), "--config", "simple_cnn"]) == ExitStatus.WRONG_INPUT
    assert "simple_cnn" in capsys.readouterr().err
    assert main([*command(tmp_path), "--dataset", "cifar10", "--data-path", "/nowhere"]) == ExitStatus.REFUSED
    assert "/nowhere" in capsys.readouterr().err


def test_more_trials_than_the_memory_holds_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine says that it has little; this process cannot take its memory away."""
    monkeypatch.setattr(preflight, "available_memory", lambda: ACTOR_BYTES + RANK_BYTES)
    assert main(command(tmp_path, "search.concurrency=2")) == ExitStatus.REFUSED
    said = capsys.readouterr().err
    assert "2 trials cannot run at the same time: each takes about 664 MiB of memory" in said
    assert "and 664 MiB are free" in said
    assert "remedy: --set search.concurrency=1 fits" in said


def begun(tmp_path: Path) -> SearchFolder:
    """A search that has been begun and interrupted before its first trial."""
    folder = SearchFolder.create(tmp_path / "searches", NAME, now=datetime.now().astimezone())
    configuration = SearchConfiguration.read(
        [tmp_path / "search.yaml"], [f"search.directory={folder.path.parent}"], {"name": NAME}
    )
    shared: TrainingSettings = configuration.settings()
    log = SearchLogWriter(folder.path)
    log.write(
        SearchStarted(
            search=NAME,
            settings=configuration.search.model_dump(mode="json"),
            shared=shared.model_dump(mode="json"),
            objectives={"validation_accuracy": "max"},
            environment={},
        ),
        SearchEnded(status="interrupted", reason="stopped by a signal"),
    )
    log.close()
    return folder


def test_another_space_does_not_continue_a_search(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = command(tmp_path, "search.space.optimizer.learning_rate.log_uniform=[0.001,1]", "loop.epochs=3")
    folder = begun(tmp_path)
    log = folder.log.read_bytes()
    assert main(arguments) == ExitStatus.WRONG_INPUT
    said = capsys.readouterr().err
    assert "search s was begun with other settings" in said
    assert "loop.epochs: 2 so far, 3 now" in said
    assert (
        "search.space.optimizer.learning_rate: {log_uniform: [0.0001, 0.1]} so far, {log_uniform: [0.001, 1.0]} now"
        in said
    )
    assert folder.log.read_bytes() == log


def test_a_search_has_one_driver(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = command(tmp_path)
    folder = begun(tmp_path)
    log = folder.log.read_bytes()
    with folder.driving():
        assert main(arguments) == ExitStatus.REFUSED
    said = capsys.readouterr().err
    assert f"search s is already driven by process {os.getpid()}" in said
    assert "give this search another NAME" in said
    assert folder.log.read_bytes() == log
