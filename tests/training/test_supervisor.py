"""The driver, with a launcher whose ranks end as scripted.

Tests with real launchers and killed ranks are in tests/training/faults.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from observability.runlog import Notice, Phase, RunEnded, RunStarted, WorkersFailed, read_all, select
from tests.training.runs import small_settings, supervised
from training import failures, supervisor
from training.errors import (
    DeviceError,
    ExitStatus,
    Interrupted,
    PlatformError,
    ResumeMismatchError,
    TrainingFailedError,
)
from training.evidence import StepFile
from training.failures import Failure
from training.launch.task import Outcome, RankTask, WorkersFailedError, unheard
from training.recovery.causes import Cause
from training.rundir import RunDirectory

DONE = Outcome(status="done", step=42, weights_sha256="ab" * 32)

Ending = Callable[[RankTask], Outcome]
Supervise = Callable[..., Outcome]


class ScriptedLauncher:
    """Ends each attempt by the next of `endings`; records whether it was closed."""

    def __init__(self, *endings: Ending) -> None:
        self._endings = list(endings)
        self.attempts: list[int] = []
        self.is_closed = False

    def launch(
        self, task: RankTask, *, on_phase: Callable[[str], None], notify: Callable[[str], None] = unheard
    ) -> Outcome:
        del notify
        self.attempts.append(task.attempt)
        on_phase("workers_start")
        return self._endings.pop(0)(task)

    def close(self) -> None:
        self.is_closed = True


def well(task: RankTask) -> Outcome:
    return DONE


def die(task: RankTask) -> Outcome:
    raise WorkersFailedError("status 1", exits={0: -signal.SIGKILL})


def refuse(task: RankTask) -> Outcome:
    failure = Failure.of(ResumeMismatchError("another batch", remedy="set it back"), rank=0)
    failures.record(task.run_directory, failure, attempt=task.attempt)
    raise WorkersFailedError("status 1")


def raise_in_code(task: RankTask) -> Outcome:
    try:
        raise KeyError("label")
    except KeyError as error:
        failures.record(task.run_directory, Failure.of(error, rank=1), attempt=task.attempt)
    raise WorkersFailedError("status 1")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    return run


@pytest.fixture
def supervise(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> Supervise:
    """Drives the run with a launcher; `delay` seconds are between a second loss of a process and the restart."""

    def drive(launcher: ScriptedLauncher, *, max_restarts: int = 2, node_rank: int = 0, delay: float = 0.01) -> Outcome:
        monkeypatch.setattr(supervisor, "make_launcher", lambda *_, **__: launcher)
        scale: dict[str, object] = {"max_restarts": max_restarts}
        if node_rank:
            scale |= {"launcher": "torchrun", "nodes": 2, "workers": 2, "node_rank": node_rank, "rendezvous": "head:1"}
        recovery = {"lost_process": {"delay": delay}}
        return supervised(small_settings(scale=scale, recovery=recovery), run)

    return drive


def test_a_run_that_ends_well_is_logged_from_start_to_end(run: RunDirectory, supervise: Supervise) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    launcher = ScriptedLauncher(well)
    assert supervise(launcher) == DONE
    events = read_all(run.path)
    assert [type(event) for event in events] == [RunStarted, Phase, Phase, RunEnded]
    end = select(events, RunEnded)[0]
    assert (end.status, end.step, end.weights_sha256) == ("done", 42, DONE.weights_sha256)
    assert launcher.is_closed
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before, "its handlers stayed"


def test_dead_ranks_are_restarted_with_a_notice_each(run: RunDirectory, supervise: Supervise) -> None:
    launcher = ScriptedLauncher(die, die, well)
    assert supervise(launcher, max_restarts=2) == DONE
    assert launcher.attempts == [0, 1, 2]
    notices = [notice.message for notice in select(read_all(run.path), Notice)]
    assert notices == [
        f"rank 0 was killed by SIGKILL; restarting{delay} (restart {number} of 2 for lost processes)"
        for number, delay in ((1, ""), (2, " in 10 ms"))
    ]
    failed = select(read_all(run.path), WorkersFailed)
    assert [(one.attempt, one.reason, one.restarts, one.cause, one.delay_seconds) for one in failed] == [
        (0, "rank 0 was killed by SIGKILL", True, "lost_process", 0.0),
        (1, "rank 0 was killed by SIGKILL", True, "lost_process", 0.01),
    ]


def test_a_failure_beyond_a_driver_s_limit_ends_the_run(run: RunDirectory, supervise: Supervise) -> None:
    """KubeRay retries a job with another driver of the same run, which restarts its ranks as often again."""
    for driver in range(2):
        launcher = ScriptedLauncher(*[die] * 9)
        with pytest.raises(TrainingFailedError, match=r"^rank 0 was killed by SIGKILL") as caught:
            supervise(launcher, max_restarts=2)
        assert caught.value.status is ExitStatus.FAILED
        assert launcher.attempts == [0, 1, 2]
        assert launcher.is_closed
        assert select(read_all(run.path), RunEnded)[-1].status == "failed"
        failed = select(read_all(run.path), WorkersFailed)[3 * driver :]
        assert [one.restarts for one in failed] == [True, True, False]


def test_a_step_that_fails_three_times_ends_the_run(run: RunDirectory, supervise: Supervise) -> None:
    def die_in_step_13(task: RankTask) -> Outcome:
        StepFile(run.path, attempt=task.attempt, rank=0).set(13)
        return die(task)

    launcher = ScriptedLauncher(*[die_in_step_13] * 9)
    with pytest.raises(TrainingFailedError, match="in step 13\nStep 13 failed 3 times") as caught:
        supervise(launcher, max_restarts=5)
    assert launcher.attempts == [0, 1, 2]
    line = "  attempt 2, lost process: rank 0 was killed by SIGKILL, in step 13"
    assert line in str(caught.value).split("\n")


def test_a_signal_ends_the_wait_for_a_restart_at_once(run: RunDirectory, supervise: Supervise) -> None:
    def interrupt_when_waiting() -> None:
        while not any(phase.name == "backoff" for phase in select(read_all(run.path), Phase)):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt_when_waiting)
    thread.start()
    launcher = ScriptedLauncher(die, die)
    outcome = supervise(launcher, delay=60)  # far longer than the test
    thread.join()
    assert (outcome.status, launcher.attempts) == ("stopped", [0, 1])
    assert select(read_all(run.path), RunEnded)[-1].status == "interrupted"


def test_no_rank_is_started_again_once_the_run_is_asked_to_stop(run: RunDirectory, supervise: Supervise) -> None:
    def fail_meanwhile(kind: str, task: RankTask) -> Outcome:
        run.request_stop()
        failure = Failure.sudden("waited for a batch for 16 s", kind=kind, cause=Cause.HANG)
        failures.record(run.path, replace(failure, rank=0), attempt=task.attempt)
        raise WorkersFailedError("status 1", exits={0: 1})

    for kind, restarts in ((failures.STEP_DEADLINE, 2), (failures.STOPPED_WAITING, 0)):
        launcher = ScriptedLauncher(partial(fail_meanwhile, kind))
        assert supervise(launcher, max_restarts=restarts).status == "stopped", kind


def test_a_refusal_keeps_its_status_and_is_final(run: RunDirectory, supervise: Supervise) -> None:
    launcher = ScriptedLauncher(refuse)
    with pytest.raises(PlatformError) as caught:
        supervise(launcher)
    assert caught.value.status is ExitStatus.REFUSED
    assert str(caught.value) == "another batch\n  remedy: set it back"
    assert launcher.attempts == [0]


def test_a_defect_is_reported_with_its_traceback(run: RunDirectory, supervise: Supervise) -> None:
    with pytest.raises(TrainingFailedError) as caught:
        supervise(ScriptedLauncher(raise_in_code))
    text = str(caught.value)
    assert text.startswith("Traceback")
    assert "rank 1 failed: KeyError: 'label'" in text
    assert str(run.logs) in text


def test_rank_and_node_of_a_hardware_error_are_named(run: RunDirectory, supervise: Supervise) -> None:
    def find_a_sick_gpu(task: RankTask) -> Outcome:
        failure = Failure.of(DeviceError("node ip-10-0-0-7, GPU 3: no answer within 60 s"), rank=11)
        failures.record(task.run_directory, failure, attempt=task.attempt)
        raise WorkersFailedError("status 1")

    with pytest.raises(TrainingFailedError, match=r"^rank 11: node ip-10-0-0-7, GPU 3: no answer within 60 s"):
        supervise(ScriptedLauncher(find_a_sick_gpu), max_restarts=0)
    launcher = ScriptedLauncher(find_a_sick_gpu, well)
    assert supervise(launcher, max_restarts=1) == DONE
    assert "(restart 1 of 10 for hardware errors)" in select(read_all(run.path), Notice)[-1].message


def test_failure_records_of_earlier_drivers_are_ignored(run: RunDirectory, supervise: Supervise) -> None:
    failures.record(run.path, Failure.of(ValueError("last week's"), rank=0), attempt=0)
    launcher = ScriptedLauncher(die, well)
    assert supervise(launcher) == DONE


@pytest.mark.usefixtures("hangups")
def test_a_signal_asks_the_ranks_to_stop(run: RunDirectory, supervise: Supervise) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):

        def stop_when_asked(_: RankTask, number: signal.Signals = number) -> Outcome:
            os.kill(os.getpid(), number)
            assert run.stop_is_requested()
            return Outcome(status="stopped", step=7)

        assert supervise(ScriptedLauncher(stop_when_asked)).status == "stopped"
        notice, ended = select(read_all(run.path), Notice)[-1], select(read_all(run.path), RunEnded)[-1]
        assert notice.message.startswith(f"{number.name}: saving and stopping")
        assert (ended.status, ended.step) == ("interrupted", 7)


def test_a_second_signal_ends_the_wait_for_the_ranks(run: RunDirectory, supervise: Supervise) -> None:
    def never_stop(task: RankTask) -> Outcome:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the second signal was ignored")

    launcher = ScriptedLauncher(never_stop)
    with pytest.raises(Interrupted) as caught:
        supervise(launcher)
    assert caught.value.status is ExitStatus.INTERRUPTED
    assert f"make resume NAME={run.path}" in str(caught.value)
    assert launcher.is_closed


def test_only_the_driver_of_node_0_writes_the_log(run: RunDirectory, supervise: Supervise) -> None:
    failures.record(run.path, Failure.of(ValueError("of node 0"), rank=0), attempt=9)
    supervise(ScriptedLauncher(well), node_rank=1)
    assert read_all(run.path) == []
    ended, scale = WorkersFailedError("status 1"), small_settings().scale
    assert failures.cause(run.path, attempt=9, ended=ended, scale=scale).message == "of node 0"
