"""Which steps are profiled: those of the settings, those that are asked for, and what happens at the ends of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from observability.profiling.window import ProfileFolder, Window
from observability.runlog import Notice, ProfileAnswered, read_all, select
from tests.training.launch.driver import train
from tests.training.launch.ranks import run_world
from tests.training.runs import run_alone, small_settings
from training.cli import main
from training.config.schema import TrainingSettings
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


def warnings_of(run: Path) -> list[str]:
    return [notice.message for notice in select(read_all(run), Notice) if notice.level == "warning"]


def test_a_window_across_epochs_has_its_steps_and_ends_with_the_run(tmp_path: Path) -> None:
    run_alone(quick(20, steps=30), tmp_path / "run")
    (profile,) = ProfileFolder.all_of(tmp_path / "run")
    assert profile.window == Window(first=20, last=LAST, world=1)
    assert steps_of(profile) == list(range(20, LAST + 1))


def test_a_window_beyond_the_last_step_is_a_warning(tmp_path: Path) -> None:
    run_alone(quick(10, max_steps=5), tmp_path / "run")
    assert warnings_of(tmp_path / "run") == ["profile.start_step=10 is beyond the last step, 5: nothing is profiled"]
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


def test_a_request_that_the_run_refuses_ends_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    last = 100_000
    endless = small_settings(
        loop={"epochs": last}, profile={"start_step": last, "steps": 1}, checkpoint={"every_steps": last}
    )
    with train(endless, tmp_path) as driver:
        assert driver.wait_for(lambda event: event.kind == "step")
        assert main(["profile", str(driver.run)]) == 3
        driver.interrupt()
        driver.end()
    assert "run run refuses the request: a profile is already planned" in capsys.readouterr().err
