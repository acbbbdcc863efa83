"""Failure records and their cause: the first exception other than a lost peer, if there is one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st

from tests.limits import files_up_to
from training import failures
from training.errors import ExitStatus, NonFiniteLossError, PlatformError, ResumeMismatchError
from training.failures import Failure

LOST_PEER = RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]")


def at(time: float, error: BaseException, *, rank: int) -> Failure:
    """The failure of a rank at a given time."""
    return Failure(**{**vars(Failure.of(error, rank=rank)), "time": time})


def test_a_rank_s_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    failure = Failure.of(ResumeMismatchError("another batch", remedy="set it back"), rank=3)
    failures.record(tmp_path, failure, attempt=1)
    assert failures.cause(tmp_path, attempt=1, launcher_view="status 1") == failure
    assert (failure.status, failure.remedy, failure.trace) == (ExitStatus.REFUSED, "set it back", "")


def test_the_first_exception_is_the_cause_and_later_ones_follow_from_it(tmp_path: Path) -> None:
    first, second = at(1.0, KeyError("label"), rank=1), at(2.0, ValueError("late"), rank=0)
    for failure in (second, first):
        failures.record(tmp_path, failure, attempt=0)
    assert failures.cause(tmp_path, attempt=0, launcher_view="") == first


def test_a_lost_peer_is_not_the_cause_even_if_it_was_noticed_first(tmp_path: Path) -> None:
    lost, cause = at(1.0, LOST_PEER, rank=0), at(2.0, NonFiniteLossError("step 7"), rank=1)
    for failure in (lost, cause):
        failures.record(tmp_path, failure, attempt=0)
    assert failures.cause(tmp_path, attempt=0, launcher_view="") == cause


@given(st.permutations(range(4)), st.integers(0, 3))
def test_the_rank_that_raised_is_the_cause_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], raising: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    for time, rank in enumerate(order):
        error = ValueError("mine") if rank == raising else LOST_PEER
        failures.record(folder, at(time, error, rank=rank), attempt=0)
    assert failures.cause(folder, attempt=0, launcher_view="status 1").rank == raising


def test_the_launcher_names_the_dead_rank_if_all_others_only_lost_their_peers(tmp_path: Path) -> None:
    failures.record(tmp_path, at(1.0, LOST_PEER, rank=0), attempt=0)
    cause = failures.cause(tmp_path, attempt=0, launcher_view="rank 1 was killed by SIGKILL")
    assert cause.is_transient
    assert cause.headline == "rank 1 was killed by SIGKILL"
    assert "memory" in cause.remedy


def test_failures_of_other_attempts_are_ignored(tmp_path: Path) -> None:
    failures.record(tmp_path, Failure.of(ValueError("earlier"), rank=0), attempt=0)
    assert failures.cause(tmp_path, attempt=1, launcher_view="status 1").message == "status 1"


def test_a_new_driver_removes_the_records_of_earlier_ones(tmp_path: Path) -> None:
    failures.record(tmp_path, Failure.of(ValueError("earlier"), rank=0), attempt=0)
    failures.clear(tmp_path)
    assert failures.cause(tmp_path, attempt=0, launcher_view="status 1").message == "status 1"


def test_a_record_that_a_full_disk_truncated_is_not_read(tmp_path: Path) -> None:
    failure = Failure.of(ValueError("lost"), rank=0)
    with pytest.raises(OSError, match="File too large"), files_up_to(16):
        failures.record(tmp_path, failure, attempt=0)
    assert failures.cause(tmp_path, attempt=0, launcher_view="status 1").message == "status 1"


@pytest.mark.parametrize(
    ("error", "is_transient"),
    [
        (LOST_PEER, True),
        (dist.DistBackendError("NCCL communicator was aborted"), True),
        (dist.DistNetworkError("the peer is gone"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (MemoryError(), False),
        (PlatformError("refused"), False),
    ],
)
def test_only_broken_connections_are_transient(error: BaseException, *, is_transient: bool) -> None:
    assert Failure.of(error, rank=0).is_transient is is_transient


def test_a_defect_is_reported_with_its_traceback_and_in_one_line() -> None:
    try:
        raise KeyError("label")
    except KeyError as error:
        failure = Failure.of(error, rank=2)
    assert failure.trace.startswith("Traceback")
    assert "test_failures.py" in failure.trace
    assert failure.headline == "rank 2 failed: KeyError: 'label'"


def test_an_exception_without_a_message_is_named_by_its_class() -> None:
    assert Failure.of(MemoryError(), rank=0).headline == "rank 0 failed: MemoryError"
