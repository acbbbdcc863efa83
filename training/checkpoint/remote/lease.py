"""A lease against two writers: an object beside a run's checkpoints in the bucket, which the run's driver renews.

It is written by conditional requests (`If-None-Match`, `If-Match`), so of two drivers that take it at the same time one is refused. A store
without them is asked again a moment after the write whose content it has. Whether a lease has expired is told by the store's clock alone:
its date of the object and its date of the answer.
"""

from __future__ import annotations

import getpass
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from training.checkpoint.remote.bucket import ConditionError, ReadObject, RemoteStoreError, RunBucket
from training.errors import PreflightError

LEASE_OBJECT: Final = "lease.json"
WRITER_FILE: Final = "writer.json"
"""File in the run's folder, in which a driver tells the ranks which writer they write for."""

SECONDS: Final = 60.0
"""How long a lease holds after it was renewed."""

RENEWED_EVERY: Final = 10.0
"""Seconds; a lease outlives five renewals that fail."""

_SETTLING_SECONDS = 1.0
_RELEASE_SECONDS = 10.0
_GONE = "NoSuchKey"
_WITHOUT_CONDITIONS = frozenset({"NotImplemented", "InvalidArgument", "501"})


@dataclass(frozen=True, kw_only=True)
class Writer:
    """A process that drives a run.

    Attributes:
        token: random, so that no two drivers are the same.
        user, host, pid: of the process, for people.
        machine: start of the kernel that it runs on, and its namespace of process ids; tells containers with equal host names apart.
        started: start of the process in clock ticks since then; 0 if it is not known.
        since: when it took the lease, ISO 8601 in UTC.
        seconds: how long its lease holds after each renewal.
    """

    token: str
    user: str
    host: str
    pid: int
    machine: str
    started: int
    since: str
    seconds: float = SECONDS

    @classmethod
    def this_process(cls, *, seconds: float = SECONDS) -> Writer:
        """This process, as a writer from now on."""
        return cls(
            token=secrets.token_hex(16),
            user=_user(),
            host=socket.gethostname(),
            pid=os.getpid(),
            machine=_machine(),
            started=_started(os.getpid()),
            since=_now(),
            seconds=seconds,
        )

    def describe(self) -> str:
        """Who and since when."""
        return f"process {self.pid} of {self.user} on {self.host}, since {self.since}"

    def is_gone(self) -> bool:
        """Whether it was a process of this machine and namespace that has ended. False of one elsewhere, which cannot be told."""
        if (self.host, self.machine) != (socket.gethostname(), _machine()) or not self.machine:
            return False
        return _started(self.pid) != self.started


class LeaseLostError(Exception):
    """Another driver writes to the run's part of the bucket."""


@dataclass(frozen=True, kw_only=True)
class _Held:
    """The lease as this process has written it last."""

    writer: Writer
    etag: str


class Lease:
    """The lease on a run's part of a bucket. Every method may raise `RemoteStoreError`."""

    def __init__(self, bucket: RunBucket, writer: Writer) -> None:
        self._bucket = bucket
        self._held = _Held(writer=writer, etag="")

    def take(self, *, say: Callable[[str], None], look_every: float = 2.0) -> None:
        """Take the lease. One that another driver holds is waited for until it is renewed, which proves that driver alive, or expires.

        Args:
            say: told once that this waits, and for how long.
            look_every: seconds between two looks at it.

        Raises:
            PreflightError: a driver that lives holds it; says who, since when and until when.
        """
        has_said = False
        seen: ReadObject | None = None
        while True:
            found = self._find()
            if found is None:
                if self._write(replaces=None):
                    return
                continue
            other = _decoded(found.data)
            if other is None or other.is_gone() or found.age >= other.seconds:
                if self._write(replaces=found.etag):
                    return
                continue
            if seen is not None and found.etag != seen.etag:
                raise _refusal(self._bucket, other, left=other.seconds - found.age)
            left = other.seconds - found.age
            if not has_said:
                has_said = True
                say(
                    f"{self._bucket.location.url} is leased to {other.describe()}; waiting up to {left:.0f} s for a sign of life"
                )
            seen = found
            time.sleep(min(look_every, left + 0.1))

    def renew(self) -> None:
        """Let it hold for another `Writer.seconds`.

        Raises:
            LeaseLostError: another driver has taken it.
        """
        writer = self._held.writer
        try:
            etag = self._bucket.write(LEASE_OBJECT, _stamped(writer), replaces=self._held.etag)
        except RemoteStoreError as error:
            if error.code in _WITHOUT_CONDITIONS:
                confirm(self._bucket, writer.token)
                etag = self._bucket.write(LEASE_OBJECT, _stamped(writer))
            elif isinstance(error, ConditionError) or error.code == _GONE:
                etag = self._own_etag()
            else:
                raise
        self._held = _Held(writer=writer, etag=etag)

    def _own_etag(self) -> str:
        """The entity tag of an object that was expected to be another: a write whose answer was lost may have been done."""
        found = self._find()
        holder = None if found is None else _decoded(found.data)
        if found is None or holder is None or holder.token != self._held.writer.token:
            raise LeaseLostError(_lost(self._bucket, holder))
        return found.etag

    def release(self) -> None:
        """Give it back, if it is still this driver's."""
        with suppress(LeaseLostError):
            confirm(self._bucket, self._held.writer.token)
            self._bucket.remove(LEASE_OBJECT)

    def _find(self) -> ReadObject | None:
        # Listed first: a request for what does not exist may be refused as if it were forbidden.
        if not self._bucket.objects(LEASE_OBJECT):
            return None
        try:
            return self._bucket.read(LEASE_OBJECT)
        except RemoteStoreError as error:
            if error.code == _GONE:  # released since
                return None
            raise

    def _write(self, *, replaces: str | None) -> bool:
        """Write it in place of what was found; whether nobody else was faster."""
        writer = self._held.writer
        try:
            etag = self._bucket.write(LEASE_OBJECT, _stamped(writer), replaces=replaces, is_new=replaces is None)
        except ConditionError:
            return False
        except RemoteStoreError as error:
            if error.code == _GONE:  # released since
                return False
            if error.code not in _WITHOUT_CONDITIONS:
                raise
            etag = self._bucket.write(LEASE_OBJECT, _stamped(writer))
            time.sleep(_SETTLING_SECONDS)
            try:
                confirm(self._bucket, writer.token)
            except LeaseLostError:
                return False
        self._held = _Held(writer=writer, etag=etag)
        return True


def confirm(bucket: RunBucket, token: str) -> None:
    """Check that a writer still holds the lease; asked before anything that another writer's checkpoints could suffer from.

    Raises:
        LeaseLostError: it does not.
        RemoteStoreError: the store does not say.
    """
    holder = _decoded(bucket.read(LEASE_OBJECT).data) if bucket.objects(LEASE_OBJECT) else None
    if holder is None or holder.token != token:
        raise LeaseLostError(_lost(bucket, holder))


@contextmanager
def held(
    bucket: RunBucket,
    run_directory: Path,
    *,
    say: Callable[[str], None],
    on_lost: Callable[[str], None],
    renewed_every: float = RENEWED_EVERY,
    seconds: float = SECONDS,
) -> Iterator[None]:
    """Hold the lease until the block ends, renewed by a thread, and tell the run's ranks the token.

    Args:
        bucket: the run's part of the bucket.
        run_directory: the run's folder.
        say: told what the caller waits for.
        on_lost: called by the thread, once, if another driver has taken the lease; with the reason.
        renewed_every: seconds between two renewals.
        seconds: how long a lease holds that is not renewed.

    Raises:
        PreflightError: a driver that lives holds it.
        RemoteStoreError: the store failed.
    """
    lease = Lease(bucket, writer := Writer.this_process(seconds=seconds))
    lease.take(say=say)
    file = run_directory / WRITER_FILE
    file.write_text(writer.token, encoding="ascii")
    is_over = threading.Event()

    def keep() -> None:
        while not is_over.wait(renewed_every):
            try:
                lease.renew()
            except LeaseLostError as error:
                on_lost(str(error))
                return
            except RemoteStoreError:  # the uploads report that the store fails
                continue

    thread = threading.Thread(target=keep, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        file.unlink(missing_ok=True)
        _release(lease, after=thread)


def _release(lease: Lease, *, after: threading.Thread) -> None:
    """Give a lease back once nobody renews it any more; one whose store does not answer expires."""

    def release() -> None:
        after.join()
        with suppress(RemoteStoreError):
            lease.release()

    thread = threading.Thread(target=release, name="lease-release", daemon=True)
    thread.start()
    thread.join(_RELEASE_SECONDS)


def writer_of(run_directory: Path) -> str | None:
    """The token that the run's driver holds the lease with; None without a driver."""
    with suppress(FileNotFoundError):
        return (run_directory / WRITER_FILE).read_text(encoding="ascii")
    return None


def _refusal(bucket: RunBucket, other: Writer, *, left: float) -> PreflightError:
    until = datetime.now(UTC) + timedelta(seconds=left)
    return PreflightError(
        f"{bucket.location.url} is being written by {other.describe()}, whose lease was renewed just now and holds until "
        f"{until.isoformat(timespec='seconds')}; a run has one writer",
        remedy="stop that run, or give this one another --name; a lease of a driver that has died expires by itself",
    )


def _lost(bucket: RunBucket, holder: Writer | None) -> str:
    now = "nobody" if holder is None else holder.describe()
    return f"{bucket.location.url} is no longer leased to this run but to {now}"


def _stamped(writer: Writer) -> bytes:
    """The lease with the time, so that each renewal has another entity tag."""
    record = {**asdict(writer), "renewed": datetime.now(UTC).isoformat(timespec="microseconds")}
    return json.dumps(record, sort_keys=True).encode() + b"\n"


def _decoded(data: bytes) -> Writer | None:
    with suppress(ValueError):
        return _WRITER.validate_json(data)
    return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return str(os.getuid())


def _machine() -> str:
    with suppress(OSError):
        # Containers with the network of their host have its name, and process ids of their own.
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{kernel} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def _started(pid: int) -> int:
    """Start of a process in clock ticks since boot (proc(5), /proc/pid/stat, field 22); 0 if there is none."""
    with suppress(OSError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
    return 0


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


_WRITER = TypeAdapter(Writer)
