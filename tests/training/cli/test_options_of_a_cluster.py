"""Options of a cluster are refused without `--env`, and numbers outside their range everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from training.cli import main


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["train", "--team", "research"], "--team"),
        (["train", "--group", "a10g"], "--group"),
        (["train", "--detach"], "--detach"),
        (["train", "--deadline-hours", "3"], "--deadline-hours"),
        (["train", "--outputs", "outputs.json"], "--outputs"),
        (["train", "--schedule", "0 2 * * *"], "--schedule"),
        (["train", "--time-zone", "Europe/Berlin"], "--time-zone"),
        (["resume", "first", "--team", "research"], "--team"),
        (["stop", "first", "--detach"], "--detach"),
        (["jobs", "--team", "research"], "--team"),
        (["logs", "--kubeconfig", "file"], "--kubeconfig"),
        (["logs", "--pod", "x"], "--pod"),
    ],
)
def test_an_option_of_a_cluster_needs_its_environment(
    words: list[str], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert f"{flag} needs a cluster\n  remedy: name its environment: ENV=… (--env)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ui", "--port", "65536"], "argument --port: must be at least 0 and at most 65535, not 65536"),
        (["forward", "--env", "dev", "--port", "-1"], "argument --port: must be at least 1 and at most 65535, not -1"),
        (["notebook", "--port", "99999"], "argument --port: must be at least 0 and at most 65535, not 99999"),
        (["logs", "--rank", "-1"], "argument --rank: must be at least 0, not -1"),
        (["logs", "--days", "nan"], "argument --days: must be at least 0, not nan"),
        (["cluster", "--env", "dev", "--gpus", "-1"], "argument --gpus: must be at least 0, not -1"),
        (["cluster", "--env", "dev", "--hours", "inf"], "argument --hours: must be at least 0, not inf"),
        (["data-sync", "--env", "dev", "--workers", "0"], "argument --workers: must be at least 1, not 0"),
    ],
)
def test_a_number_outside_its_range_is_refused_with_the_range(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_the_log_of_a_rank_that_the_run_does_not_have_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "first" / "logs"
    logs.mkdir(parents=True)
    (logs.parent / "settings.yaml").touch()
    for rank in (0, 1):
        (logs / f"rank-{rank}.jsonl").touch()
    assert main(["logs", "first", "--root", str(tmp_path), "--rank", "7"]) == 2
    assert "run first has no log of rank 7\n  remedy: ranks that have written: 0, 1" in capsys.readouterr().err


def test_a_session_outside_its_job_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ray's answer is a double: the real one finds any cluster of the machine, also another test's."""

    def no_cluster(address: str) -> NoReturn:
        raise ConnectionError(f"Could not find any running Ray instance at {address}")

    monkeypatch.setattr("training.interactive.activity.RayCluster", no_cluster)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # SIGTERM would interrupt the tests after this one
    assert main(["session"]) == 3
    assert "no Ray cluster answers at auto" in capsys.readouterr().err
