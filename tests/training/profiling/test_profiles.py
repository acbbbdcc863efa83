"""Which steps are profiled: those of the settings, and those asked for, each request once; and verdicts that name a planted bottleneck."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.spec.cluster_names import PROFILE_REQUEST, REQUESTS_VARIABLE
from observability.profiling.analysis import Analysis, analyse, run_figures
from observability.profiling.window import ProfileFolder, RankSteps, Window
from observability.runlog import Notice, ProfileAnswered, read_all, select
from tests.training.launch.driver import train
from tests.training.launch.ranks import run_world
from tests.training.runs import run_alone, small_settings
from training.cli import main
from training.config.schema import TrainingSettings
from training.profiling.answers import Answers
from training.profiling.judge import Judge
from training.profiling.request import MOST_STEPS, ProfileRequest, RequestFile

LAST = 42
"""Last step of the run of `small_settings`."""


def quick(start_step: int | None = None, *, steps: int = 4, max_steps: int = LAST) -> TrainingSettings:
    """A run with a profile."""
    return small_settings(
        loop={"max_steps": max_steps},
        profile={"start_step": start_step, "steps": steps},
        checkpoint={"every_steps": 1000},
    )


def steps_of(profile: ProfileFolder, *, rank: int = 0) -> list[int]:
    return [one.step for one in profile.rank_steps(rank).steps]


def test_a_window_across_epochs_has_its_steps_and_ends_with_the_run(tmp_path: Path) -> None:
    run_alone(quick(20, steps=30), tmp_path / "run")
    (profile,) = ProfileFolder.all_of(tmp_path / "run")
    assert profile.window == Window(first=20, last=LAST, world=1)
    assert steps_of(profile) == list(range(20, LAST + 1))


def test_a_window_beyond_the_last_step_is_a_warning(tmp_path: Path) -> None:
    run_alone(quick(10, max_steps=5), tmp_path / "run")
    messages = [notice.message for notice in select(read_all(tmp_path / "run"), Notice) if notice.level == "warning"]
    assert messages == ["profile.start_step=10 is beyond the last step, 5: nothing is profiled"]
    assert ProfileFolder.all_of(tmp_path / "run") == []


def test_a_run_that_resumes_beyond_the_window_is_not_profiled_again(tmp_path: Path) -> None:
    run_alone(quick(2, steps=2, max_steps=6), tmp_path / "run")
    (profile,) = ProfileFolder.all_of(tmp_path / "run")
    written = profile.trace(0).stat().st_mtime_ns
    run_alone(quick(2, steps=2, max_steps=9), tmp_path / "run")
    assert profile.trace(0).stat().st_mtime_ns == written


def test_a_request_is_seen_by_all_ranks_at_the_same_step(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    RequestFile(run).make(ProfileRequest(steps=3))
    settings = small_settings(scale={"launcher": "torchrun", "workers": 2}, checkpoint={"every_steps": 1000})
    run_world(settings, run)
    (profile,) = ProfileFolder.all_of(run)
    assert profile.missing_ranks() == []
    assert steps_of(profile, rank=0) == steps_of(profile, rank=1)
    assert len(steps_of(profile)) == 3
    assert RequestFile(run).read() is None


def test_a_request_while_a_profile_is_planned_is_refused(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    RequestFile(run).make(ProfileRequest(steps=3))
    run_alone(quick(LAST), run)
    (answer,) = select(read_all(run), ProfileAnswered)
    assert (answer.state, answer.text) == ("refused", "a profile is already planned or under way")
    (profile,) = ProfileFolder.all_of(run)
    assert steps_of(profile) == [LAST]


def test_a_run_that_is_profiled_ends_in_the_same_weights(tmp_path: Path) -> None:
    profiled = run_alone(quick(3, max_steps=10), tmp_path / "a")
    plain = run_alone(quick(max_steps=10), tmp_path / "b")
    assert profiled.weights_sha256 == plain.weights_sha256
    assert not (tmp_path / "b" / "profile").exists()


def test_a_request_that_no_command_wrote_asks_for_a_number_of_steps_all_the_same() -> None:
    most = f'{{"steps": {MOST_STEPS + 1}}}'
    for text, steps in (
        ('{"steps": 5}', 5),
        ('{"steps": 0}', 1),
        ("", 1),
        ('{"steps": "many"}', 1),
        (most, MOST_STEPS),
    ):
        assert ProfileRequest.parse(text.encode()).steps == steps
    for damaged in (b"many", b'{"steps": 2, "id": "..\\n"}'):
        assert ProfileRequest.parse(damaged) == ProfileRequest.parse(damaged)


def test_a_memory_snapshot_without_a_gpu_is_skipped_with_a_line(tmp_path: Path) -> None:
    settings = small_settings(loop={"max_steps": 4}, profile={"start_step": 2, "steps": 1, "memory": True})
    run_alone(settings, tmp_path / "run")
    messages = [notice.message for notice in select(read_all(tmp_path / "run"), Notice)]
    assert "no memory snapshot is written: it is of a GPU, and the ranks run on CPUs" in messages


@pytest.mark.extended
def test_a_running_run_is_profiled_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    endless = small_settings(loop={"epochs": 100_000}, checkpoint={"every_steps": 1000})
    with train(endless, tmp_path) as driver:
        assert driver.wait_for(lambda event: event.kind == "step")
        assert main(["profile", str(driver.run), "--steps", "3"]) == 0
        asked = capsys.readouterr().out
        assert "run profiles 3 of its next steps" in asked
        driver.interrupt()
        driver.end()
    (profile,) = ProfileFolder.all_of(driver.run)
    assert f"{profile.window.title}: " in asked
    assert main(["profile", str(driver.run)]) == 0
    shown = capsys.readouterr().out
    assert shown in asked
    assert profile.window.title in (driver.run / "report.html").read_text()


def test_a_run_that_has_ended_unprofiled_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    run_alone(quick(max_steps=2), run)
    (run / "settings.yaml").write_text("{}")
    assert main(["profile", str(run)]) == 3
    error = capsys.readouterr().err
    assert "run run is not running, and none of its steps were profiled" in error
    assert "make profile" in error


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


SMALL = {"name": "mlp", "options": {"hidden": [64]}}
BOTTLENECKS = "tests.training.profiling.bottlenecks:"
FIRST, STEPS = 3, 5
"""Steps 1 and 2 are slow in any run."""


def profiled(folder: Path, *, workers: int = 1, **sections: dict[str, Any]) -> Analysis:
    """The analysis of a real run with these settings, which is profiled from its third step on."""
    sections["loop"] = {"max_steps": FIRST + STEPS, **sections.get("loop", {})}
    sections["scale"] = {"launcher": "torchrun" if workers > 1 else "plain", "workers": workers}
    settings = small_settings(profile={"start_step": FIRST, "steps": STEPS}, **sections)
    (run_world if workers > 1 else run_alone)(settings, folder)
    (profile,) = ProfileFolder.all_of(folder)
    return analyse(profile, run_figures(folder))


def test_a_slow_loader_is_data_bound(tmp_path: Path) -> None:
    found = profiled(
        tmp_path / "run", data={"dataset": f"{BOTTLENECKS}slow_digits", "options": {"seconds": 0.4}}, model=SMALL
    )
    assert found.verdict.limit == "data"
    assert "data.loader_workers" in found.verdict.advice


def test_a_slow_rank_is_named_as_the_straggler_and_the_parts_of_the_chosen_steps_add_up(tmp_path: Path) -> None:
    model = {"name": f"{BOTTLENECKS}slow_rank", "options": {"rank": 1, "seconds": 0.4}}
    found = profiled(tmp_path / "run", workers=2, model=model)
    assert (found.verdict.limit, found.verdict.slow_rank) == ("straggler", 1)
    assert found.ranks[0].waiting > found.ranks[1].waiting
    profile = ProfileFolder.of_step(tmp_path / "run", FIRST)
    for rank, one in enumerate(found.ranks):
        assert [step.step for step in profile.rank_steps(rank).steps] == list(range(FIRST, FIRST + STEPS))
        parts = one.data + one.checkpoint + one.compute + one.transfer + one.waiting + one.overhead
        assert parts == pytest.approx(one.step, rel=0.02)


def test_large_layers_on_one_rank_are_compute_bound(tmp_path: Path) -> None:
    found = profiled(
        tmp_path / "run",
        model={"name": "mlp", "options": {"hidden": [1024, 1024]}},
        loop={"global_batch": 256},
        checkpoint={"every_steps": 1000},
    )
    assert found.verdict.limit == "compute"
    assert found.ranks[0].top[0].name.startswith("aten::")
