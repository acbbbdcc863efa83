"""The cause of an exception."""

from __future__ import annotations

import errno

import pytest
import torch
import torch.distributed as dist

from training.errors import CheckpointError, DataError, DeviceError, NonFiniteLossError, OutOfMemoryError
from training.recovery.causes import MEANINGS, Cause, cause_of, has_timed_out, is_out_of_memory

GLOO = RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]")


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
        (NonFiniteLossError("step 3"), Cause.CODE),
        (SystemExit(3), Cause.CODE),
        (FileNotFoundError(errno.ENOENT, "no such file"), Cause.CODE),
        (PermissionError(errno.EACCES, "not yours"), Cause.CODE),
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


def test_every_cause_has_its_words() -> None:
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    for cause in Cause:
        assert MEANINGS[cause]
        assert cause.plural != cause.text
