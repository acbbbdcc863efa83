"""What a rank leaves in the run's folder for the case that it cannot report its own end: the step it is in, and its stack.

    failures/attempt-0-rank-1.step    the step, replaced at the start of every step
    failures/attempt-0-rank-1.stack   the stack that Python writes on a fatal signal (SIGSEGV, SIGBUS, SIGABRT …), and on SIGTERM

After SIGKILL and `os._exit` there is a step and no stack.
"""

from __future__ import annotations

import faulthandler
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from training.user_code import is_user_code

FOLDER: Final = "failures"

_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)$', re.MULTILINE)
_FATAL = re.compile(r"^Fatal Python error: (?P<text>.+)$", re.MULTILINE)
_TIMEOUT = re.compile(r"^Timeout \([\d:.]+\)!$", re.MULTILINE)
"""The first line of faulthandler.dump_traceback_later; the main thread's stack is the last one."""

FATAL_SIGNALS: Final = {
    "Segmentation fault": signal.SIGSEGV,
    "Bus error": signal.SIGBUS,
    "Aborted": signal.SIGABRT,
    "Floating-point exception": signal.SIGFPE,
    "Illegal instruction": signal.SIGILL,
}
"""faulthandler's names of the signals that it handles (CPython, Modules/faulthandler.c)."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known of a rank without its own report.

    Attributes:
        step: the step it was in; None before its first one.
        fatal: the signal that ended it; None if Python wrote no stack for one.
        was_terminated: it still ran when the launcher ended the group.
        exceeded_deadline: faulthandler's thread ended it, because its step took too long and native code held the interpreter's lock.
        place: `file:line in function` of its innermost frame, of user code if there is any; empty without a stack.
    """

    step: int | None = None
    fatal: signal.Signals | None = None
    was_terminated: bool = False
    exceeded_deadline: bool = False
    place: str = ""


class StepFile:
    """Keeps the number of the current step on disk, where it survives the process. A step costs two microseconds."""

    def __init__(self, run_directory: Path, *, attempt: int, rank: int) -> None:
        (run_directory / FOLDER).mkdir(exist_ok=True)
        self._fd = os.open(_path(run_directory, attempt, rank, "step"), os.O_WRONLY | os.O_CREAT, 0o644)

    def set(self, step: int) -> None:
        """Replace the number; on a full disk, the old one stays."""
        with suppress(OSError):
            os.pwrite(self._fd, b"%12d" % step, 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


@contextmanager
def stack_on_death(run_directory: Path, *, attempt: int, rank: int) -> Iterator[None]:
    """Within the block, Python writes the stack of the current thread when a signal ends this process."""
    (run_directory / FOLDER).mkdir(exist_ok=True)
    with stack_file(run_directory, attempt=attempt, rank=rank).open("w", encoding="utf-8") as file:
        faulthandler.enable(file, all_threads=False)
        faulthandler.register(signal.SIGTERM, file, all_threads=False, chain=True)
        try:
            yield
        finally:
            faulthandler.unregister(signal.SIGTERM)
            faulthandler.disable()


def read(run_directory: Path, *, attempt: int, rank: int) -> Evidence:
    """The evidence of a rank; empty if it ended before it could leave any."""
    stack = _text(stack_file(run_directory, attempt=attempt, rank=rank))
    fatal = _FATAL.search(stack)
    exceeded = _TIMEOUT.search(stack) is not None
    step = _text(_path(run_directory, attempt, rank, "step"))
    return Evidence(
        step=int(step) if step.strip().isdigit() else None,
        fatal=FATAL_SIGNALS.get(fatal["text"]) if fatal else None,
        was_terminated=bool(stack) and fatal is None and not exceeded,
        exceeded_deadline=exceeded,
        place=innermost(stack.rpartition("\n\n")[2] if exceeded else stack),
    )


def has_started(run_directory: Path, *, attempt: int) -> bool:
    """Whether a rank of the attempt has begun to run."""
    return any((run_directory / FOLDER).glob(f"attempt-{attempt}-rank-*.stack"))


def stack_file(run_directory: Path, *, attempt: int, rank: int) -> Path:
    """The file of a rank's stacks."""
    return _path(run_directory, attempt, rank, "stack")


def innermost(stack: str) -> str:
    """The innermost frame of a stack of faulthandler, of user code if there is any; empty without a frame."""
    frames = list(_FRAME.finditer(stack))  # the innermost first
    frame = next((frame for frame in frames if is_user_code(frame["file"])), frames[0] if frames else None)
    return f"{frame['file']}:{frame['line']} in {frame['function']}" if frame else ""


def _path(run_directory: Path, attempt: int, rank: int, kind: str) -> Path:
    return run_directory / FOLDER / f"attempt-{attempt}-rank-{rank}.{kind}"


def _text(path: Path) -> str:
    with suppress(FileNotFoundError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""
