"""The folder of a run: naming, lookup, lock, and what is said if it cannot be written."""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from observability.runlog import CheckpointCommitted, Notice, RunLogWriter
from tests.engines.small_disk import small_disk
from tests.makefile import command
from training.config.load import load_settings
from training.config.schema import DataSettings, ModelSettings, RunSettings, TrainingSettings
from training.environment import RUN_ARGUMENTS_VARIABLE
from training.errors import ExitStatus, PreflightError, SettingsError
from training.rundir import RunDirectory, runs
from training.unwritable import explain, probe

NOW = datetime(2026, 11, 21, 10, 42, 33, tzinfo=UTC)


def settings(root: Path, name: str | None = None) -> TrainingSettings:
    return TrainingSettings(run=RunSettings(directory=root, name=name))


def make(root: Path, name: str | None = None) -> RunDirectory:
    return RunDirectory.create(settings(root, name), now=NOW)


def test_drivers_of_several_nodes_create_the_folder_of_one_run_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as nodes:
        made = [list(nodes.map(lambda _, name=f"r{run}": make(tmp_path, name), range(8))) for run in range(10)]
    assert [{one.path for one in run} for run in made] == [{tmp_path / f"r{run}"} for run in range(10)]
    assert {file.name for file in tmp_path.glob("*/*") if file.is_file()} == {"settings.yaml"}


@given(model=st.text(min_size=1), dataset=st.text(min_size=1))
def test_any_names_make_a_valid_one(tmp_path_factory: pytest.TempPathFactory, model: str, dataset: str) -> None:
    root = tmp_path_factory.mktemp("runs", numbered=True)
    odd = TrainingSettings(
        run=RunSettings(directory=root), model=ModelSettings(name=model), data=DataSettings(dataset=dataset)
    )
    run = RunDirectory.create(odd, now=NOW)
    assert RunSettings(name=run.name).name == run.name
    assert run.path.parent == root


def test_a_run_is_named_after_model_dataset_and_time_and_numbered_within_a_second(tmp_path: Path) -> None:
    made = [make(tmp_path) for _ in range(3)]
    assert [run.name for run in made] == [f"simple_cnn-digits-20261121-104233{one}" for one in ("", "-2", "-3")]
    for run in made:
        assert run.settings() == settings(tmp_path, run.name)
        assert load_settings([run.settings_file], environment={}) == run.settings()


def test_creating_a_run_of_an_existing_name_does_not_change_it_and_written_settings_do(tmp_path: Path) -> None:
    run = make(tmp_path, "mine")
    before = run.settings_file.read_bytes()
    changed = settings(tmp_path, "mine").model_copy(update={"model": ModelSettings(name="mlp")})
    assert RunDirectory.create(changed, now=NOW) == run
    assert run.settings_file.read_bytes() == before
    run.write_settings(changed)
    assert run.settings().model.name == "mlp"
    assert [path.name for path in run.path.iterdir() if "partial" in path.name] == []
    with pytest.raises(PreflightError, match=r"run\.directory=.*/settings.yaml: Not a directory"):
        make(run.settings_file)


def test_a_run_is_found_by_name_and_by_path_and_an_unknown_one_refused_with_the_nearest(tmp_path: Path) -> None:
    run = make(tmp_path, "mine")
    assert RunDirectory.open("mine", root=tmp_path) == run
    assert RunDirectory.open(str(run.path), root=Path("elsewhere")) == run
    with pytest.raises(SettingsError, match="did you mean mine"):
        RunDirectory.open("mien", root=tmp_path)


def test_commands_name_a_run_as_its_user_types_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "runs"
    monkeypatch.setenv("RTP_RUN_DIRECTORY", str(root))
    monkeypatch.chdir(tmp_path)
    run, copy = make(root, "mine"), make(tmp_path, "mine")
    assert [run.argument, copy.argument] == ["mine", f"{tmp_path}/mine"]
    assert RunDirectory.open(copy.argument, root=root) == copy
    assert RunDirectory.open("./mine", root=root).argument == "./mine"
    monkeypatch.delenv(RUN_ARGUMENTS_VARIABLE, raising=False)
    assert copy.command("resume") == f"make resume NAME={tmp_path}/mine"
    monkeypatch.setenv(RUN_ARGUMENTS_VARIABLE, "ENV=prod JOB=digits TEAM=research")
    assert copy.command("stop") == "make stop ENV=prod JOB=digits TEAM=research"


def test_the_newest_run_is_the_most_recently_active_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no runs under"):
        RunDirectory.newest(tmp_path)
    old, new = make(tmp_path, "old"), make(tmp_path, "new")
    for run, time in ((old, 2000), (new, 1000)):
        with RunLogWriter(run.path) as log:
            log.write(Notice(level="info", message="something"))
        os.utime(run.events, (time, time))
    assert RunDirectory.newest(tmp_path) == old
    assert [run.name for run in runs(tmp_path)] == ["old", "new"]


def test_a_second_driver_is_refused_with_the_first_one_s_process_and_a_killed_one_leaves_no_lock(
    tmp_path: Path,
) -> None:
    run = make(tmp_path, "mine")
    program = (
        "import sys, time; from pathlib import Path; from training.rundir import RunDirectory\n"
        "with RunDirectory(Path(sys.argv[1])).driving(): print('driving', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(run.path)], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "driving\n"
        assert run.is_running()
        assert run.driver_pid() == driver.pid
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    assert not run.is_running()
    with run.driving():
        assert run.driver_pid() == os.getpid()
        assert run.is_running()
        with pytest.raises(PreflightError, match=f"driven by process {os.getpid()}") as caught, run.driving():
            pass
    assert caught.value.status == ExitStatus.REFUSED
    assert not run.is_running()


def test_only_a_running_run_can_be_asked_to_stop_and_the_next_driver_clears_the_request(tmp_path: Path) -> None:
    run = make(tmp_path, "mine")
    with pytest.raises(PreflightError, match="run mine is not running"):
        run.request_stop()
    with run.driving():
        assert not run.stop_is_requested()
        run.request_stop()
        assert run.stop_is_requested()
    with run.driving():
        assert not run.stop_is_requested()


def test_a_run_is_resumed_to_have_other_workers_and_with_a_range_to_resize_it(tmp_path: Path) -> None:
    run = make(tmp_path, "mine")
    with pytest.raises(PreflightError, match="run mine is not running") as refused:
        run.request_workers(1)
    words = shlex.split(str(refused.value.remedy).removesuffix(" resumes it with them"))
    assert command(*words[1:]) == ["-m", "training", "resume", run.argument, "--set-all", "scale.workers=1"]
    with run.driving(), pytest.raises(SettingsError, match="is not a range") as unfit:
        run.request_workers(1)
    *_, one, other = re.findall(r"SET=(scale\.workers=\S+?),? ", str(unfit.value.remedy))
    assert (one, other) == ("scale.workers=1", "scale.workers=1-2")
    assert load_settings(overrides=[other]).scale.is_elastic


def test_a_run_without_its_checkpoints_is_repeated_as_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial of a search that has lost has none: the new run is not one of the search's folder."""
    monkeypatch.setenv("RTP_RUN_DIRECTORY", str(tmp_path / "runs"))
    trial, run = make(tmp_path / "searches" / "first" / "trials", "t001"), make(tmp_path / "runs", "mine")
    archive = trial.path / "code" / "0123456789abcdef.tar.gz"
    archive.parent.mkdir()
    archive.touch()
    (trial.path / "code.json").write_text('{"sha256": "%s"}' % ("0123456789abcdef" * 4))
    remedies = {}
    for one in (trial, run):
        with closing(RunLogWriter(one.path)) as log:
            log.write(CheckpointCommitted(step=9, path="x", bytes=1, stall_seconds=0.0, write_seconds=0.0))
        with pytest.raises(PreflightError, match="has committed step 9") as caught:
            one.refuse_lost_checkpoints()
        remedies[one.name] = caught.value.remedy
    assert remedies["mine"].endswith(f"train --config {run.settings_file} --name NAME")
    assert remedies["t001"].endswith(
        f"train --config {trial.settings_file} --name NAME --set run.directory={tmp_path / 'runs'} --code {archive}"
    )


FOLDER = Path("runs/one")


def of(number: int, *file: str) -> OSError:
    return OSError(number, os.strerror(number), *file)


def explained(error: BaseException) -> str:
    return str(explain(error, FOLDER, owner="run", then="make resume resumes it"))


def test_a_full_disk_is_named_with_the_file_and_the_remedy() -> None:
    assert explained(of(errno.ENOSPC, "runs/one/events.jsonl")) == (
        "runs/one/events.jsonl: No space left on device: the run's folder cannot be written\n"
        "  remedy: free disk space; make resume resumes it"
    )
    assert explained(of(errno.EDQUOT)).startswith("runs/one: ")
    assert "make the folder writable" in explained(of(errno.EROFS))


def test_a_full_disk_is_found_behind_other_errors() -> None:
    def behind_others(number: int) -> BaseException:
        error, outer = RuntimeError("a library's own"), ValueError("while it was handled")
        error.__cause__, outer.__context__ = of(number), error
        return outer

    assert "No space left" in explained(behind_others(errno.ENOSPC))
    assert explained(behind_others(errno.EPERM)) == "None", "a library may be forbidden anything"
    assert explained(of(errno.ENOENT)) == explained(ValueError("x")) == "None"


def test_a_probe_finds_a_full_disk_and_a_lost_folder_and_leaves_nothing(tmp_path: Path) -> None:
    found = probe(tmp_path / "gone")
    assert found is not None
    assert found.errno == errno.ENOENT
    with small_disk(tmp_path / "disk", size="128k") as disk:
        assert probe(disk) is None
        assert list(disk.iterdir()) == []
        (disk / "ballast").write_bytes(bytes(124 * 1024))
        found = probe(disk)
        assert found is not None
        assert "No space left" in explained(found)
