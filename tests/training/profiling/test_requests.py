"""Requests to a job, in the folder that its workers mount: each is met once, whatever happens to the run. A folder stands for the mount."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.spec.cluster_names import PROFILE_REQUEST, REQUESTS_VARIABLE
from observability.profiling.answer import read_answer_line
from observability.profiling.window import ProfileFolder, RankSteps, Window
from observability.runlog import ProfileAnswered, read_all, select
from tests.training.launch.driver import train
from tests.training.runs import run_alone, small_settings
from training.profiling.answers import Answers
from training.profiling.judge import Judge
from training.profiling.request import ProfileRequest

REQUEST = ProfileRequest(steps=2)
RECORDING = ProfileAnswered(request=REQUEST.id, state="recording", text="steps 3 to 4", step=3, is_remote=True)


@pytest.fixture
def mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, with a request in it."""
    folder = tmp_path / "mount"
    folder.mkdir()
    (folder / PROFILE_REQUEST).write_text(REQUEST.dump())
    monkeypatch.setenv(REQUESTS_VARIABLE, str(folder))
    return folder


def train_to(step: int, run: Path) -> None:
    """Train a run up to a step, without a driver."""
    run_alone(small_settings(loop={"max_steps": step}, checkpoint={"every_steps": 1000}), run)


def answers_of(run: Path) -> list[tuple[str, str, str]]:
    return [(one.request, one.state, one.text) for one in select(read_all(run), ProfileAnswered)]


def judge_all(run: Path) -> None:
    """Do what the driver does with the events of a run that ends."""
    judge = Judge(run)
    for answer in select(read_all(run), ProfileAnswered):
        judge.handle(answer)
    judge.finish()


def test_a_request_is_met_once_over_restarts_though_its_file_stays(tmp_path: Path, mount: Path) -> None:
    run = tmp_path / "run"
    train_to(6, run)
    recording = (REQUEST.id, "recording", "steps 3 to 4 of 1 rank")
    assert answers_of(run) == [recording]
    train_to(8, run)
    assert answers_of(run) == [recording, recording], "the first driver has not judged it, so another one has to"
    judge_all(run)
    train_to(10, run)
    *_, (_, state, text) = answers_of(run)
    assert (len(answers_of(run)), state) == (3, "done")
    assert text.startswith("steps 3 to 4: ")
    assert len(ProfileFolder.all_of(run)) == 1
    assert (mount / PROFILE_REQUEST).exists()


def test_the_next_request_is_met_too(tmp_path: Path, mount: Path) -> None:
    run = tmp_path / "run"
    train_to(6, run)
    (mount / PROFILE_REQUEST).write_text(ProfileRequest(steps=1).dump())
    train_to(12, run)
    assert [profile.window.first for profile in ProfileFolder.all_of(run)] == [3, 9]


@pytest.mark.usefixtures("mount")
def test_a_profile_during_which_the_ranks_ended_is_not_tried_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    Answers(run).write(RECORDING)
    train_to(6, run)
    assert answers_of(run) == [(REQUEST.id, "refused", "the ranks were restarted while they recorded it; ask again")]
    assert ProfileFolder.all_of(run) == []


@pytest.mark.usefixtures("mount")
def test_a_run_without_steps_left_refuses(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_to(1, run)
    assert answers_of(run) == [(REQUEST.id, "refused", "the run has no steps left to profile")]


def test_a_profile_that_a_run_did_not_come_to_is_refused_at_its_end(tmp_path: Path) -> None:
    judge = Judge(tmp_path)
    judge.handle(RECORDING)
    judge.finish()
    assert answers_of(tmp_path) == [(REQUEST.id, "refused", "the run ended before the steps were profiled")]


def test_an_answer_that_is_damaged_is_none(tmp_path: Path) -> None:
    answers = Answers(tmp_path)
    answers.write(RECORDING)
    assert answers.newest(REQUEST.id) == RECORDING
    (file,) = (tmp_path / "profile" / "requests").iterdir()
    for content in ("", "{", '{"kind": "notice", "time": 1, "level": "info", "message": ""}'):
        file.write_text(content)
        assert answers.newest(REQUEST.id) is None, content


def test_a_profile_that_is_made_again_is_complete_when_all_ranks_have_written_theirs_again(tmp_path: Path) -> None:
    profile = ProfileFolder.of_step(tmp_path, 3)
    window = Window(first=3, last=4, world=2)
    ranks = [RankSteps(rank=rank, host="a", device="cpu", steps=[]) for rank in range(2)]
    profile.write_window(window)
    for rank in ranks:
        profile.write_rank_steps(rank)
    assert profile.is_complete()
    profile.discard()
    profile.write_window(window)
    profile.write_rank_steps(ranks[0])
    assert not profile.is_complete()
    profile.write_rank_steps(ranks[1])
    assert profile.is_complete()


@pytest.mark.long
def test_the_driver_of_a_run_that_goes_on_prints_the_verdict_on_all_ranks(tmp_path: Path, mount: Path) -> None:
    endless = small_settings(
        loop={"epochs": 100_000}, checkpoint={"every_steps": 100_000}, scale={"launcher": "torchrun", "workers": 2}
    )
    with train(endless, tmp_path, environment={REQUESTS_VARIABLE: str(mount)}) as driver:
        assert driver.wait_for(lambda event: isinstance(event, ProfileAnswered) and event.state == "done")
        assert driver.process.poll() is None
        driver.interrupt()
        printed = driver.end().out.splitlines()
    (profile,) = ProfileFolder.all_of(driver.run)
    first, second = ([one.step for one in profile.rank_steps(rank).steps] for rank in (0, 1))
    assert first == second
    assert len(first) == REQUEST.steps
    recording, *verdict, done = filter(None, map(read_answer_line, printed))
    assert recording == (REQUEST.id, "recording", f"{profile.window.title} of 2 ranks")
    assert verdict[0].text.startswith(f"{profile.window.title}: ")
    assert done == (REQUEST.id, "done", str(profile.path))
