"""`data.cache`: the dataset's folder, copied to a local disk before training.

One rank of every node runs the program that also copies datasets to a cluster's file system (`platform_charts.images.data_sync`): it
copies in parallel, verifies every file, gives files their names when they are complete, and continues what a killed run has begun.
Imports no torch.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from training.config.schema import DataSettings
from training.errors import DataError, ExitStatus, TrainingFailedError
from training.launch.processes import die_with_parent

LIMIT_VARIABLE: Final = "RTP_CACHE_GIB"
"""Environment variable with the size of the cache in GiB. Without it, the cache may fill its disk."""

_PROGRAM: Final = "platform_charts.images.data_sync"
_THREADS: Final = 32
"""More than one core needs: on a network file system and in S3 they wait for most of the time."""

_ROOT: Final = Path(__file__).resolve().parents[2]


def cached(settings: DataSettings) -> DataSettings:
    """The settings by which a rank reads the copy; the same ones without a cache."""
    if settings.cache is None:
        return settings
    return settings.model_copy(update={"path": settings.cache / _name(settings), "cache": None})


def fill(
    settings: DataSettings,
    *,
    is_restart: bool,
    report: Callable[[str], None],
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Copy the dataset to the cache, and wait for another run that does.

    Args:
        settings: with a cache.
        is_restart: the same driver has copied it before; a copy that is complete and undamaged is taken as it is, because the
            ranks have to see the same samples again.
        report: called with each line about the progress.
        environment: of this process.

    Raises:
        DataError: the source cannot be copied, or there is not enough room; the message has both sizes.
        TrainingFailedError: the copy failed, e.g. because the source could not be reached.
    """
    cache = settings.cache
    assert cache is not None, "checked by the caller"
    name = _name(settings)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f".{name}.lock", report) as lock:
            command = _command(settings, cache, name, is_restart=is_restart, limit=environment.get(LIMIT_VARIABLE))
            report(f"copying {_source(settings)} to {cache / name}")
            status, lines = _run(command, environment, report=report, lock=lock)
    except OSError as error:
        raise DataError(
            f"data.cache={cache} cannot be written: {error.strerror}",
            remedy="set data.cache to a folder on a local disk",
        ) from error
    if status:
        raise _as_error(status, lines, settings)


def _source(settings: DataSettings) -> str:
    """The bucket's URL, or an absolute path."""
    source = str(settings.path) if settings.is_in_bucket else str(settings.folder.absolute())
    return source.rstrip("/") or "/"


def _name(settings: DataSettings) -> str:
    """Name of the copy: that of the source's folder, and a hash of its path."""
    source = _source(settings)
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", source.rpartition("/")[2]).strip(".-_")[:40]
    return f"{slug or 'data'}-{hashlib.sha256(source.encode()).hexdigest()[:12]}"


def _command(settings: DataSettings, cache: Path, name: str, *, is_restart: bool, limit: str | None) -> list[str]:
    return [
        *(sys.executable, "-m", _PROGRAM, _source(settings), f"datasets/{name}", f"--root={cache}"),
        # An object whose only checksum is one that the program cannot compute still has its size, and came over TLS.
        *(f"--workers={_THREADS}", "--accept-unverified"),
        *(("--reuse",) if is_restart else ()),
        *((f"--limit={int(limit) * 2**30}",) if limit else ()),
    ]


def _run(
    command: list[str], environment: Mapping[str, str], *, report: Callable[[str], None], lock: int
) -> tuple[int, list[str]]:
    """Run the program, which ends with this process; returns its exit status and all it said.

    It inherits the lock, so that it holds it until it has ended too.
    """
    python_path = os.pathsep.join([str(_ROOT), *filter(None, [environment.get("PYTHONPATH")])])
    lines: list[str] = []
    with subprocess.Popen(
        command,
        env={**environment, "PYTHONPATH": python_path, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        pass_fds=(lock,),
        preexec_fn=die_with_parent,  # noqa: PLW1509 - a single prctl call, safe after a fork with threads
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line.rstrip())
                if not line.startswith("error: "):
                    report(line.rstrip())
        except BaseException:
            process.kill()
            raise
    return process.returncode, lines


def _as_error(status: int, lines: list[str], settings: DataSettings) -> DataError | TrainingFailedError:
    starts = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    said = "\n".join(lines[starts[-1] :]).removeprefix("error: ") if starts else "\n".join(lines[-20:])
    message = f"data.path={settings.path} was not copied to data.cache={settings.cache}: {said}"
    if status in {ExitStatus.WRONG_INPUT, ExitStatus.REFUSED}:
        return DataError(
            message,
            remedy="correct the source, make room in the cache, or read the dataset in place: --set data.cache=",
        )
    return TrainingFailedError(
        message, remedy="check the source and the permission to read it; the next start continues"
    )


@contextmanager
def _locked(file: Path, report: Callable[[str], None]) -> Iterator[int]:
    """Hold a lock of this machine, which the kernel releases with the processes that have the file open; yields the open file."""
    with file.open("a") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another run that copies to {file.parent}")
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield opened.fileno()
