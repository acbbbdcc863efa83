"""Options of a cluster are refused without `--env`, and numbers outside their range everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from tests.training.cli.command import assert_refused
from training.cli import main


def test_an_option_of_a_cluster_needs_its_environment() -> None:
    for words in (
        ["train", "--team", "research"],
        ["train", "--group", "a10g"],
        ["train", "--detach"],
        ["train", "--deadline-hours", "3"],
        ["train", "--outputs", "outputs.json"],
        ["train", "--schedule", "0 2 * * *"],
        ["train", "--time-zone", "Europe/Berlin"],
        ["resume", "--team", "research", "first"],
        ["stop", "--detach", "first"],
        ["jobs", "--team", "research"],
        ["logs", "--kubeconfig", "file"],
        ["logs", "--pod", "x"],
    ):
        assert_refused(2, f"{words[1]} needs a cluster\n  remedy: name its environment: ENV=… (--env)", *words)


def test_a_number_outside_its_range_is_refused_with_the_range(capsys: pytest.CaptureFixture[str]) -> None:
    for words, flag, value, said in (
        (["ui"], "--port", "65536", "at least 0 and at most 65535"),
        (["forward", "--env", "dev"], "--port", "-1", "at least 1 and at most 65535"),
        (["notebook"], "--port", "99999", "at least 0 and at most 65535"),
        (["logs"], "--rank", "-1", "at least 0"),
        (["logs"], "--days", "nan", "at least 0"),
        (["cluster", "--env", "dev"], "--gpus", "-1", "at least 0"),
        (["cluster", "--env", "dev"], "--hours", "inf", "at least 0"),
        (["data-sync", "--env", "dev"], "--workers", "0", "at least 1"),
    ):
        with pytest.raises(SystemExit) as caught:
            main([*words, flag, value])
        assert caught.value.code == 2
        assert f"argument {flag}: must be {said}, not {value}" in capsys.readouterr().err


def test_the_log_of_a_rank_that_the_run_does_not_have_is_refused(tmp_path: Path) -> None:
    logs = tmp_path / "first" / "logs"
    logs.mkdir(parents=True)
    for file in (logs.parent / "settings.yaml", logs / "rank-0.jsonl", logs / "rank-1.jsonl"):
        file.touch()
    said = "run first has no log of rank 7\n  remedy: ranks that have written: 0, 1"
    assert_refused(2, said, "logs", "first", "--root", str(tmp_path), "--rank", "7")


def test_a_session_outside_its_job_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's answer is a double: the real one finds any cluster of the machine, also another test's."""

    def no_cluster(address: str) -> NoReturn:
        raise ConnectionError(f"Could not find any running Ray instance at {address}")

    monkeypatch.setattr("training.interactive.activity.RayCluster", no_cluster)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # SIGTERM would interrupt the tests after this one
    assert_refused(3, "no Ray cluster answers at auto", "session")
