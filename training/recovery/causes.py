"""Causes of failures, and the cause of an exception. Imports no torch: the driver uses it, too."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from training import unwritable
from training.errors import DeviceError, LoaderProcessError


class Cause(StrEnum):
    """Why a worker group failed. Each cause has a budget of its own (`training.recovery.budgets`)."""

    CODE = "code"
    OUT_OF_MEMORY = "out_of_memory"
    FULL_DISK = "full_disk"
    HARDWARE = "hardware"
    LOST_PROCESS = "lost_process"
    LOST_NODE = "lost_node"
    COMMUNICATION = "communication"
    HANG = "hang"
    STORAGE = "storage"
    STARTUP = "startup"
    SCHEDULING = "scheduling"
    PREEMPTION = "preemption"

    @property
    def text(self) -> str:
        """In words: `lost process`."""
        return self.value.replace("_", " ")

    @property
    def plural(self) -> str:
        """What is counted: `lost processes`."""
        return _PLURALS[self]


MEANINGS: Final[Mapping[Cause, str]] = MappingProxyType(
    {
        Cause.CODE: "an exception of the code, refused input or settings: another attempt would raise it again",
        Cause.OUT_OF_MEMORY: "a rank ran out of memory of its GPU or its host",
        Cause.FULL_DISK: "a disk or quota is full, and does not empty itself",
        Cause.HARDWARE: "a GPU failed, or did not pass the check before the ranks connect",
        Cause.LOST_PROCESS: "a rank, or a process of its data loader, was killed, crashed in native code, or vanished",
        Cause.LOST_NODE: "a node is gone, with its ranks",
        Cause.COMMUNICATION: "a connection between ranks broke, and no rank is known to have failed",
        Cause.HANG: "a rank did not answer within scale.collective_timeout, or exceeded a deadline of recovery",
        Cause.STORAGE: "a file system or object store did not answer, or returned an error that may pass",
        Cause.STARTUP: "the ranks did not start within scale.start_timeout, or ended before any of them had started",
        Cause.SCHEDULING: "the cluster has too few CPUs, GPUs or nodes for the ranks",
        Cause.PREEMPTION: "the node is taken away with notice; the ranks commit and leave",
    }
)
"""Each cause in words."""

_PLURALS: Final[Mapping[Cause, str]] = MappingProxyType(
    {
        Cause.CODE: "errors in code",
        Cause.OUT_OF_MEMORY: "exhausted memory",
        Cause.FULL_DISK: "full disks",
        Cause.HARDWARE: "hardware errors",
        Cause.LOST_PROCESS: "lost processes",
        Cause.LOST_NODE: "lost nodes",
        Cause.COMMUNICATION: "communication errors",
        Cause.HANG: "hangs",
        Cause.STORAGE: "storage errors",
        Cause.STARTUP: "failed starts",
        Cause.SCHEDULING: "missing resources",
        Cause.PREEMPTION: "preemptions",
    }
)

_COMMUNICATION_ERRORS = frozenset({"DistBackendError", "DistNetworkError", "DistStoreError", "DistError"})

_CLOSED_PAIR = "Application timeout caused pair closure"
"""gloo's message of a collective that waits for a peer with which another one has timed out (transport/tcp/pair.cc)."""

_OUT_OF_MEMORY_ERRORS = frozenset({"OutOfMemoryError", "MemoryError"})
_OF_CPUS = "DefaultCPUAllocator"
"""torch's allocator of host memory raises a plain RuntimeError that names it."""

_BAD_DEVICE = frozenset({46, 100, 101, 214, 220, 714, 721, 802, 999})
"""Errors of CUDA's runtime that speak of the device and not of the kernel (cudaError_t): devices unavailable, no device, invalid device,
uncorrectable ECC error, uncorrectable NVLink error, hardware stack error, contained hardware error, system not ready, and unknown, which
is what is left of a GPU that has fallen off the bus."""

_LOST_LOADER = re.compile(
    r"DataLoader worker \(pid.*?\) (?P<how>is killed by signal: [\w ]+|exited unexpectedly[\w ]*)"
)

_STORAGE = frozenset({errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO, errno.ENOTCONN, errno.EHOSTDOWN})
"""Errors of a remote file system, or of a disk, that may pass."""


def cause_of(error: BaseException) -> Cause:
    """The cause of an exception that a rank ends with; one that says nothing else is an error in code."""
    if is_communication_error(error):
        return Cause.COMMUNICATION
    if is_out_of_memory(error):
        return Cause.OUT_OF_MEMORY
    if unwritable.full_disk(error) is not None:
        return Cause.FULL_DISK
    if isinstance(error, DeviceError) or getattr(error, "error_code", None) in _BAD_DEVICE:  # of torch.AcceleratorError
        return Cause.HARDWARE
    if any(isinstance(one, OSError) and one.errno in _STORAGE for one in _chain(error)):
        return Cause.STORAGE
    return Cause.LOST_PROCESS if lost_loader(error) else Cause.CODE


def lost_loader(error: BaseException) -> str:
    """How a process of the data loader ended, if that is the cause of an error; empty if it is not.

    torch's handler of SIGCHLD raises at any line of the rank, also while another error is handled.
    """
    for one in _chain(error):
        if isinstance(one, LoaderProcessError):
            return str(one.args[0])
        if (found := _LOST_LOADER.search(str(one))) is not None:
            return f"a process of the data loader {found['how'].strip(' .')}"
    return ""


def is_communication_error(error: BaseException) -> bool:
    """Whether a collective failed: a peer is gone, or did not come in time."""
    # gloo reports a lost peer as a plain RuntimeError whose text names its own source file, but for a pair that a timeout has closed.
    names = {cls.__name__ for cls in type(error).__mro__}
    of_gloo = isinstance(error, RuntimeError) and any(part in str(error) for part in ("gloo", _CLOSED_PAIR))
    return bool(names & _COMMUNICATION_ERRORS) or of_gloo


def has_timed_out(error: BaseException) -> bool:
    """Whether a collective failed because a peer did not come in time."""
    return is_communication_error(error) and speaks_of_timeout(str(error))


def speaks_of_timeout(message: str) -> bool:
    """Whether the message of a failed collective says that a peer did not come in time."""
    return "timed out" in message.lower() or _CLOSED_PAIR in message


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory of the GPU or of the host ran out."""
    names = {cls.__name__ for cls in type(error).__mro__}
    return bool(names & _OUT_OF_MEMORY_ERRORS) or _OF_CPUS in str(error)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it was raised from, or while handling."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
