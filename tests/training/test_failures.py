"""Failure records and their cause, and tracebacks as a user reads them."""

from __future__ import annotations

import ctypes
import errno
import json
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.limits import files_up_to
from tests.training.code.projects import write
from training import failures
from training.code.import_path import on_import_path
from training.config.schema import ScaleSettings
from training.errors import CheckpointError, ExitStatus, ResumeMismatchError
from training.evidence import FOLDER, StepFile
from training.factories import import_factory
from training.failures import Failure
from training.launch import local, ray_facts
from training.launch.ray_facts import Fact, Node
from training.launch.task import WorkersFailedError
from training.recovery.causes import Cause
from training.user_code import named_at_source, user_traceback

LOST_PEER = RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]")


STATUS_1 = WorkersFailedError("status 1")
KILLED = WorkersFailedError("status 1", exits={1: -9})


def cause(
    folder: Path, *, attempt: int = 0, ended: WorkersFailedError = STATUS_1, launcher: str = "torchrun"
) -> Failure:
    """The cause, of two ranks."""
    scale = ScaleSettings.model_validate({"launcher": launcher, "workers": 2, "collective_timeout": 15})
    return failures.cause(folder, attempt=attempt, ended=ended, scale=scale)


def at(time: float, error: BaseException, *, rank: int) -> Failure:
    """The failure of a rank at a given time."""
    return Failure(**{**vars(Failure.of(error, rank=rank)), "time": time})


def test_a_rank_s_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    failure = Failure.of(ResumeMismatchError("another batch", remedy="set it back"), rank=3)
    failures.record(tmp_path, failure, attempt=1)
    assert cause(tmp_path, attempt=1) == failure
    assert (failure.status, failure.remedy, failure.trace) == (ExitStatus.REFUSED, "set it back", "")


def test_the_full_disk_behind_an_error_and_the_step_of_its_rank_are_in_its_record(tmp_path: Path) -> None:
    error = CheckpointError("the checkpoint of step 5 could not be written", remedy="free space there")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    failures.record(tmp_path, Failure.of(error, rank=1), attempt=0)
    assert cause(tmp_path).full_disk == errno.ENOSPC
    assert Failure.of(ValueError("x"), rank=0).full_disk is None
    failures.record(tmp_path, Failure.of(OSError(errno.EIO, "I/O error"), rank=1), attempt=1)
    leave(tmp_path, rank=1, step=13, attempt=1)
    found = cause(tmp_path, attempt=1)
    assert (found.cause, found.step) == (Cause.STORAGE, 13)


def test_the_first_exception_is_the_cause_and_later_ones_follow_from_it(tmp_path: Path) -> None:
    first, second = at(1.0, KeyError("label"), rank=1), at(2.0, ValueError("late"), rank=0)
    for failure in (second, first):
        failures.record(tmp_path, failure, attempt=0)
    assert cause(tmp_path) == first


@given(st.permutations(range(4)), st.integers(0, 3))
def test_the_rank_that_raised_is_the_cause_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], raising: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    for time, rank in enumerate(order):
        error = ValueError("mine") if rank == raising else LOST_PEER
        failures.record(folder, at(time, error, rank=rank), attempt=0)
    assert cause(folder).rank == raising


def test_the_launcher_names_the_dead_rank_if_all_others_only_lost_their_peers(tmp_path: Path) -> None:
    failures.record(tmp_path, at(1.0, LOST_PEER, rank=0), attempt=0)
    found = cause(tmp_path, ended=KILLED)
    assert found.cause is Cause.LOST_PROCESS
    assert found.headline == "rank 1 was killed by SIGKILL"
    assert "memory" in found.remedy


def test_failures_of_other_attempts_and_drivers_and_truncated_ones_are_ignored(tmp_path: Path) -> None:
    failures.record(tmp_path, Failure.of(ValueError("earlier"), rank=0), attempt=0)
    assert cause(tmp_path, attempt=1).message == "status 1"
    failures.clear(tmp_path)
    assert cause(tmp_path).message == "status 1"
    with pytest.raises(OSError, match="File too large"), files_up_to(16):
        failures.record(tmp_path, Failure.of(ValueError("lost"), rank=0), attempt=0)
    assert cause(tmp_path).message == "status 1"


def test_a_defect_is_reported_with_its_traceback_and_in_one_line() -> None:
    try:
        raise KeyError("label")
    except KeyError as error:
        failure = Failure.of(error, rank=2)
    assert failure.trace.startswith("Traceback")
    assert "test_failures.py" in failure.trace
    assert failure.headline == "rank 2 failed: KeyError: 'label'"
    assert Failure.of(MemoryError(), rank=0).headline == "rank 0 failed: MemoryError"


SEGFAULT = f"""Fatal Python error: Segmentation fault

Current thread 0x00007f11 (most recent call first):
  File "{ctypes.__file__}", line 519 in string_at
  File "/code/model.py", line 12 in forward
"""
TERMINATED = """Current thread 0x00007f11 (most recent call first):
  File "/code/model.py", line 30 in forward
"""
TIMEOUT = RuntimeError(
    "[third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 15000ms for recv operation"
)


def leave(folder: Path, *, rank: int, step: int, stack: str = "", attempt: int = 0) -> None:
    """Leave the evidence of a rank that cannot report."""
    file = StepFile(folder, attempt=attempt, rank=rank)
    file.set(step)
    file.close()
    (folder / FOLDER / f"attempt-{attempt}-rank-{rank}.stack").write_text(stack)


def test_a_crash_is_named_with_step_and_place(tmp_path: Path) -> None:
    failures.record(tmp_path, at(1.0, LOST_PEER, rank=0), attempt=0)
    leave(tmp_path, rank=1, step=13, stack=SEGFAULT)
    for status in (-11, None):
        found = cause(tmp_path, ended=WorkersFailedError("status 1", exits={1: status}))
        assert found.message == "rank 1 was killed by SIGSEGV, in step 13, at /code/model.py:12 in forward"
        assert "native code crashed" in found.remedy
        assert "memory" not in found.remedy


def test_ranks_that_run_different_collectives_are_no_crash_of_native_code(tmp_path: Path) -> None:
    """Gloo ends the process that gets what does not fit, far above the end of the launcher's output."""
    said = "op.preamble.length <= op.nbytes. 3468 vs 2412. Received data size doesn't match expected size. Is there a"
    output = f"terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce fail] {said}\n"
    ended = WorkersFailedError(local._last_lines(output + "a line\n" * 9999), exits={0: -signal.SIGABRT})
    found = cause(tmp_path, ended=ended)
    assert (found.kind, found.cause) == ("SIGABRT", Cause.CODE)
    assert "3,468 bytes for a collective of 2,412" in found.message


def test_a_rank_that_its_peers_waited_for_is_named_with_the_timeout_its_step_and_its_place(tmp_path: Path) -> None:
    failures.record(tmp_path, at(1.0, TIMEOUT, rank=0), attempt=0)
    leave(tmp_path, rank=1, step=13, stack=TERMINATED)
    found = cause(tmp_path, ended=WorkersFailedError("table of torchrun", exits={0: 1}))
    assert found.message == (
        "rank 1 did not answer within 15 s (scale.collective_timeout), in step 13, at /code/model.py:30 in forward"
    )
    assert found.cause is Cause.HANG
    assert "table" not in found.message + found.remedy


def test_a_rank_that_torchrun_does_not_list_and_did_not_terminate_has_exited_with_0(tmp_path: Path) -> None:
    failures.record(tmp_path, at(1.0, LOST_PEER, rank=0), attempt=0)
    leave(tmp_path, rank=1, step=13)
    found = cause(tmp_path, ended=WorkersFailedError("table of torchrun", exits={0: 1}))
    assert found.message == "rank 1 ended with exit code 0 before the training ended, in step 13"
    assert "os._exit" in found.remedy
    assert found.cause is Cause.CODE
    leave(tmp_path, rank=1, step=13, stack=TERMINATED)  # torchrun ended it, and it is not to blame
    found = cause(tmp_path, ended=WorkersFailedError("table of torchrun", exits={0: 1}))
    assert "rank 1" not in found.message


def test_an_exit_of_user_code_is_a_permanent_failure() -> None:
    for code, said in ((0, "0 {}"), (None, "0 {}"), (3, "3 {}"), ("no data", "1 {}: no data")):
        failure = Failure.of(SystemExit(code), rank=1)
        assert failure.headline == "rank 1 ended with exit code " + said.format("before the training ended")
        assert failure.cause is Cause.CODE


def in_library(error: BaseException) -> BaseException:
    """The error without the frame of the test, which would be taken for user code."""
    assert error.__traceback__ is not None
    return error.with_traceback(error.__traceback__.tb_next)


def test_a_traceback_without_user_code_is_complete() -> None:
    with pytest.raises(ValueError, match="Expecting") as raised:
        json.loads("{")
    trace = Failure.of(in_library(raised.value), rank=1).trace
    assert trace.count("json/decoder.py") == 2
    assert "json/__init__.py" in trace


def report(folder: Path, *facts: Fact) -> None:
    """What Ray knew after the first attempt."""
    path = ray_facts.file(folder, attempt=0)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps([fact._asdict() for fact in facts]))


def test_a_rank_that_died_with_its_node_is_told_from_a_killed_one(tmp_path: Path) -> None:
    leave(tmp_path, rank=1, step=13)
    worker = "actor RayTrainWorker (process 7 on 10.0.0.2)"
    report(tmp_path, Fact(worker, "DEAD", "The actor died because its node has died. Node Id: 1"))
    ended = WorkersFailedError("Ray's report", exits={1: None})
    found = cause(tmp_path, ended=ended, launcher="ray")
    assert found.cause is Cause.LOST_NODE
    assert found.headline == "rank 1 died without reporting an error, in step 13: its node is gone"
    report(tmp_path, Fact(worker, "DEAD", "The actor's process has died"))
    assert cause(tmp_path, ended=ended, launcher="ray").cause is Cause.LOST_PROCESS


def test_ranks_of_which_none_has_started_failed_to_start(tmp_path: Path) -> None:
    found = cause(tmp_path, ended=WorkersFailedError("timed out after 2 seconds"), launcher="ray")
    assert (found.cause, found.message) == (Cause.STARTUP, "timed out after 2 seconds")
    report(tmp_path, Fact("resources", ray_facts.MISSING, "requested: much; available: little"))
    found = cause(tmp_path, ended=WorkersFailedError("timed out after 2 seconds"), launcher="ray")
    assert found.cause is Cause.SCHEDULING
    assert found.message == "the cluster has too few resources for the ranks\nrequested: much; available: little"


def test_what_the_ranks_lack_is_said_in_resources() -> None:
    cpu, gpu = {"CPU": 1.0}, {"CPU": 2.0, "GPU": 1.0}
    of_cpus = "requested: 2 ranks with CPU 1 each; available: room for 1 (10.0.0.1 has CPU 4, free CPU 1)"
    of_gpus = "requested: 2 ranks with CPU 2, GPU 1 each; available: room for 0 (10.0.0.1 has CPU 4, free CPU 4, GPU 0)"
    for each, free, were_placed, lacks in (
        (cpu, 4.0, False, ""),
        (cpu, 1.0, True, ""),
        (cpu, 1.0, False, of_cpus),
        (gpu, 4.0, True, of_gpus),
    ):
        nodes = [Node(name="10.0.0.1", total={"CPU": 4.0, "memory": 1e9}, free={"CPU": free})]
        assert ray_facts.missing(2, each, nodes, were_placed=were_placed) == lacks


def test_an_error_of_an_import_begins_in_the_user_s_module(tmp_path: Path) -> None:
    folder = write(tmp_path / "mine", {"faulty_nets.py": "\nimport no_such_package\n"})
    with on_import_path(folder), pytest.raises(ImportError) as caught:
        import_factory("faulty_nets:make", setting="model.name")
    lines = user_traceback(in_library(caught.value)).splitlines()
    assert lines[1] == f'  File "{folder / "faulty_nets.py"}", line 2, in <module>'
    assert "No module named 'no_such_package'" in lines[-1]


def test_paths_of_the_copy_become_those_of_the_folder_that_the_user_edits(tmp_path: Path) -> None:
    text = f'File "{tmp_path}/run/code/abc/nets.py", line 1'
    (tmp_path / "mine").mkdir()
    folder = tmp_path / "run" / "code" / "abc"
    assert named_at_source(text, folder=folder, source=tmp_path / "mine") == f'File "{tmp_path}/mine/nets.py", line 1'
    assert named_at_source(text, folder=folder, source=tmp_path / "gone") == text
    assert named_at_source(text, folder=folder, source=None) == text
