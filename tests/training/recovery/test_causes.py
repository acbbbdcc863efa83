"""The cause of an exception, and the evidence of a step that fails again and again."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from observability.runlog import RunLogWriter
from tests.training.runs import small_settings, training_started
from training.data.order import BatchPlan
from training.errors import CheckpointError, DataError, DeviceError, NonFiniteLossError, OutOfMemoryError
from training.evidence import Evidence
from training.failures import Failure
from training.recovery.causes import Cause, cause_of, has_timed_out
from training.recovery.poison import describe_poison
from training.recovery.policy import Incident

GLOO = RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]")


LOADER = "DataLoader worker (pid(s) 4711)"


def raised_from(error: Exception, origin: BaseException) -> Exception:
    error.__cause__ = origin
    return error


def cuda_error(number: int) -> Exception:
    """As torch raises it."""
    error = torch.AcceleratorError("CUDA error")
    error.error_code = number  # type: ignore[attr-defined] # of torch's C++ code
    return error


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (KeyError("label"), Cause.CODE),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), Cause.CODE),
        (NonFiniteLossError("step 3"), Cause.CODE),
        (FileNotFoundError(errno.ENOENT, "no such file"), Cause.CODE),
        (GLOO, Cause.COMMUNICATION),
        (RuntimeError("Application timeout caused pair closure"), Cause.COMMUNICATION),
        (dist.DistBackendError("NCCL communicator was aborted"), Cause.COMMUNICATION),
        (dist.DistNetworkError("the peer is gone"), Cause.COMMUNICATION),
        (MemoryError(), Cause.OUT_OF_MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory"), Cause.OUT_OF_MEMORY),
        (OutOfMemoryError("step 3: out of memory"), Cause.OUT_OF_MEMORY),
        (OSError(errno.ENOSPC, "full"), Cause.FULL_DISK),
        (raised_from(CheckpointError("step 5"), OSError(errno.EDQUOT, "quota")), Cause.FULL_DISK),
        (OSError(errno.EIO, "I/O error"), Cause.STORAGE),
        (raised_from(DataError("train.bin"), OSError(errno.ESTALE, "stale")), Cause.STORAGE),
        (cuda_error(214), Cause.HARDWARE),  # cudaErrorECCUncorrectable
        (cuda_error(710), Cause.CODE),  # cudaErrorAssert
        (DeviceError("node-3: GPU 1"), Cause.HARDWARE),
        (
            raised_from(ValueError("closed"), RuntimeError(f"{LOADER} is killed by signal: Killed. ")),
            Cause.LOST_PROCESS,
        ),
        (RuntimeError(f"{LOADER} exited unexpectedly"), Cause.LOST_PROCESS),
    ],
    ids=lambda value: value.name if isinstance(value, Cause) else type(value).__name__,
)
def test_the_cause_of_an_exception(error: BaseException, cause: Cause) -> None:
    assert cause_of(error) is cause


def test_a_peer_that_did_not_come_is_told_from_one_that_is_gone() -> None:
    gloo = "[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 2000ms"
    assert has_timed_out(RuntimeError(gloo))
    assert has_timed_out(dist.DistBackendError("Watchdog caught collective operation timeout: it timed out"))
    assert has_timed_out(RuntimeError("Application timeout caused pair closure"))
    assert not has_timed_out(GLOO)
    assert not has_timed_out(TimeoutError("the model timed out"))


def test_an_error_that_hides_its_origin_has_no_cause_of_storage() -> None:
    error = ValueError("not a number")
    error.__context__ = OSError(errno.EIO, "I/O error")
    assert cause_of(error) is Cause.STORAGE
    error.__suppress_context__ = True  # as `from None` does
    assert cause_of(error) is Cause.CODE


SAMPLES, BATCH = 1000, 64
PLAN = BatchPlan(size=SAMPLES, global_batch=BATCH, world=1)


def failures_in(step: int | None) -> list[Incident]:
    failure = Failure.sudden("rank 1 was killed", kind="SIGKILL", found=Evidence(step=step))
    return [Incident(attempt=number, began=0, ended=1, failure=failure, committed=0) for number in range(3)]


def test_the_samples_of_the_step_are_named_by_their_positions(tmp_path: Path) -> None:
    with RunLogWriter(tmp_path) as log:
        log.write(training_started(steps_per_epoch=PLAN.steps_per_epoch, train_samples=SAMPLES))
    settings = small_settings(loop={"global_batch": BATCH}, run={"seed": 7})
    for step in (1, 16, 17, 35):
        *attempts, samples = describe_poison(failures_in(step), settings, tmp_path).split("\n")
        assert attempts == [
            f"  attempt {number}, lost process: rank 1 was killed, in step {step}" for number in range(3)
        ]
        epoch, in_epoch = divmod(step - 1, PLAN.steps_per_epoch)
        positions = PLAN.positions(in_epoch, rank=0, micro=0)
        assert f"positions {positions[0]} to {positions[-1]} of epoch {epoch + 1};" in samples
        assert f"sample_order(train, seed=7, epoch={epoch})[{positions.start}:{positions.stop}]" in samples


def test_without_a_step_there_are_the_attempts_alone(tmp_path: Path) -> None:
    assert len(describe_poison(failures_in(None), small_settings(), tmp_path).split("\n")) == 3
    assert describe_poison([], small_settings(), tmp_path) == ""
