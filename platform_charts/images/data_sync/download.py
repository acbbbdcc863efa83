"""Downloads objects into files with several threads, verified, and visible under their names only when they are complete.

An object that was uploaded in parts is read in these parts, because its checksums are made of theirs. Requests name the entity tag that
was listed, so an object that changes meanwhile is refused instead of mixed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from .checksum import Check, Hash, checks_of
from .errors import ChangedError, CorruptError, StoppedError, SyncError
from .progress import Progress
from .source import RemoteObject
from .state import FileRecord, PartRecord, State

_CHUNK = 1024 * 1024
_ATTEMPTS = 5
_MOST_FAILURES = 20
"""After so many failed objects the rest is not tried: something is wrong with all of them."""

_OWN_CHECK = Check("ChecksumSHA256", b"", is_of_parts=False)
"""Computed while the source is read, and compared with the file on the disk."""

_RETRIED = (BotoCoreError, CorruptError)

Work = Callable[[], None]
_Result = TypeVar("_Result")


class Download:
    """One copy of a bucket's objects into a folder.

    Attributes:
        failures: why an object was not copied, by key.
    """

    def __init__(
        self,
        client: Any,  # noqa: ANN401
        bucket: str,
        folder: Path,
        *,
        state: State,
        progress: Progress,
        reads_back: bool = False,
    ) -> None:
        """Args: `reads_back` has every file read again, for a source without checksums."""
        self.failures: dict[str, str] = {}
        self._client, self._bucket, self._folder = client, bucket, folder
        self._state, self._progress, self._reads_back = state, progress, reads_back
        self._stop = threading.Event()
        self._fatal: BaseException | None = None

    def stop(self) -> None:
        """Have all threads end soon."""
        self._stop.set()

    def run(self, objects: Sequence[RemoteObject], *, workers: int, every: Callable[[], None], seconds: float) -> None:
        """Copy the objects.

        Args:
            objects: to copy.
            workers: number of threads.
            every: is called every `seconds` meanwhile.
            seconds: see `every`.

        Raises:
            StoppedError: `stop` was called.
            OSError: the disk is full or the file system fails.
        """
        work, taking = self._work(objects), threading.Lock()
        threads = [threading.Thread(target=self._take, args=(work, taking), daemon=True) for _ in range(workers)]
        for thread in threads:
            thread.start()
        due = time.monotonic() + seconds
        for thread in threads:
            while thread.is_alive():
                thread.join(max(due - time.monotonic(), 0))
                if time.monotonic() >= due:
                    every()
                    due += seconds
        if self._fatal is not None:
            raise self._fatal
        if self._stop.is_set() and len(self.failures) < _MOST_FAILURES:
            raise StoppedError("stopped; a new run continues")

    def _take(self, work: Iterator[tuple[RemoteObject, Work]], taking: threading.Lock) -> None:
        """Do one piece of work after the other."""
        while not self._stop.is_set():
            with taking:
                one, do = next(work, (None, None))
            if one is None or do is None:
                return
            try:
                do()
            except StoppedError:
                return
            except ChangedError:
                self._fail(one, "changed during the copy")
            except (SyncError, ClientError, *_RETRIED) as error:
                self._fail(one, str(error))
            except BaseException as error:  # noqa: BLE001 - raised again by `run`
                self._fatal = error
                self.stop()

    def _fail(self, one: RemoteObject, why: str) -> None:
        self.failures[one.key] = why
        if len(self.failures) >= _MOST_FAILURES:
            self.stop()

    def _work(self, objects: Sequence[RemoteObject]) -> Iterator[tuple[RemoteObject, Work]]:
        """An object in one piece is one piece of work, others are one per part."""
        for one in objects:
            if one.parts == 0:
                yield one, partial(self._copy_whole, one)
                continue
            shared = _Parts(one)
            for number in range(1, one.parts + 1):
                yield one, partial(self._copy_part, shared, number)

    def _copy_whole(self, one: RemoteObject) -> None:
        partial_file = self._state.partial_file(one)

        def attempt() -> dict[str, bytes]:
            response = self._get(one, ChecksumMode="ENABLED")
            checks = checks_of(response) or ((_OWN_CHECK,) if self._reads_back else ())
            with partial_file.open("wb") as file:
                digests = self._write(response, file.fileno(), 0, one.size, checks)
                os.fsync(file.fileno())
                # So that it is read from the disk.
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if _OWN_CHECK in checks:
                _verify([_OWN_CHECK._replace(expected=_digest_of(partial_file, _OWN_CHECK.new()))], digests)
            else:
                _verify(checks, digests)
            return digests

        self._finish(one, partial_file, self._repeated(attempt))

    def _copy_part(self, shared: _Parts, number: int) -> None:
        """Copy one part; whoever copies the last one completes the file."""
        one, partial_file = shared.object, self._state.partial_file(shared.object)
        with shared.lock:
            if shared.has_failed:
                return
            try:
                if not shared.starts:
                    shared.starts, shared.checks = self._repeated(partial(self._describe, one))
            except BaseException:
                shared.has_failed = True
                raise
        start, end = shared.starts[number - 1 : number + 1]
        known = self._state.parts.get((partial_file.name, number))
        if known is None or (known.start, known.size) != (start, end - start) or not partial_file.exists():
            try:
                known = self._repeated(partial(self._download_part, shared, number, start, end))
            except BaseException:
                shared.has_failed = True
                raise
            self._state.record(known)
        else:
            self._progress.add(known.size, is_resumed=True)
        with shared.lock:
            shared.done[number] = known
            is_last = len(shared.done) == one.parts
        if is_last:
            self._finish(one, partial_file, self._verify_parts(shared, partial_file))

    def _download_part(self, shared: _Parts, number: int, start: int, end: int) -> PartRecord:
        one, partial_file = shared.object, self._state.partial_file(shared.object)
        checks = [check for check in shared.checks if check.is_of_parts]
        response = self._get(one, Range=f"bytes={start}-{end - 1}")
        descriptor = os.open(partial_file, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            digests = self._write(response, descriptor, start, end - start, checks)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        texts = {name: digest.hex() for name, digest in digests.items()}
        return PartRecord(file=partial_file.name, number=number, start=start, size=end - start, digests=texts)

    def _describe(self, one: RemoteObject) -> tuple[list[int], tuple[Check, ...]]:
        """The offsets of an object's parts with its end, and its checksums."""
        checks = checks_of(self._head(one, ChecksumMode="ENABLED"))
        first, last = (int(self._head(one, PartNumber=number)["ContentLength"]) for number in (1, one.parts))
        sizes = [first] * (one.parts - 1) + [last]
        if sum(sizes) != one.size:
            sizes = [int(self._head(one, PartNumber=number + 1)["ContentLength"]) for number in range(one.parts)]
        if sum(sizes) != one.size:
            raise ChangedError(one.key)
        return [sum(sizes[:number]) for number in range(one.parts + 1)], checks

    def _verify_parts(self, shared: _Parts, file: Path) -> dict[str, bytes]:
        records = [shared.done[number] for number in sorted(shared.done)]
        digests: dict[str, bytes] = {}
        for check in shared.checks:
            if not check.is_of_parts:
                digests[check.name] = _digest_of(file, check.new())
            elif all(check.name in record.digests for record in records):
                digests[check.name] = check.combined([bytes.fromhex(record.digests[check.name]) for record in records])
        try:
            _verify(shared.checks, digests)
        except CorruptError:
            file.unlink()  # the next run reads all parts again
            raise
        return digests

    def _finish(self, one: RemoteObject, partial_file: Path, digests: dict[str, bytes]) -> None:
        """Give a complete file its name."""
        target = self._folder / one.path
        target.parent.mkdir(parents=True, exist_ok=True)
        partial_file.replace(target)
        checksums = {name: digest.hex() for name, digest in digests.items()}
        mtime = target.stat().st_mtime_ns
        self._state.record(FileRecord(path=one.path, size=one.size, etag=one.etag, checksums=checksums, mtime_ns=mtime))
        self._progress.finish_file()

    def _write(
        self,
        response: Any,  # noqa: ANN401
        descriptor: int,
        start: int,
        size: int,
        checks: Sequence[Check],
    ) -> dict[str, bytes]:
        """Write a response's body at an offset; returns its checksums by name."""
        hashes = {check.name: check.new() for check in checks}
        written = 0
        try:
            for chunk in response["Body"].iter_chunks(_CHUNK):
                if self._stop.is_set():
                    raise StoppedError("stopped")
                _write_all(descriptor, chunk, start + written)
                for one in hashes.values():
                    one.update(chunk)
                written += len(chunk)
                self._progress.add(len(chunk))
            if written != size:
                raise CorruptError(f"{written} bytes arrived, not {size}")
        except BaseException:
            self._progress.add(-written)
            raise
        finally:
            response["Body"].close()
        return {name: one.digest() for name, one in hashes.items()}

    def _get(self, one: RemoteObject, **options: str) -> Any:  # noqa: ANN401
        return self._call(self._client.get_object, one, IfMatch=f'"{one.etag}"', **options)

    def _head(self, one: RemoteObject, **options: Any) -> Any:  # noqa: ANN401
        """A wrong answer, of an object that changed, is noticed by the checksum or by the next GetObject."""
        return self._call(self._client.head_object, one, **options)

    def _call(self, function: Any, one: RemoteObject, **options: Any) -> Any:  # noqa: ANN401
        try:
            return function(Bucket=self._bucket, Key=one.key, **options)
        except ClientError as error:
            gone = (HTTPStatus.PRECONDITION_FAILED, HTTPStatus.NOT_FOUND)
            if error.response["ResponseMetadata"]["HTTPStatusCode"] in gone:
                raise ChangedError(one.key) from error
            raise

    def _repeated(self, attempt: Callable[[], _Result]) -> _Result:
        """Try again what a broken connection or a corrupt answer ended; the client itself repeats refused requests."""
        for number in range(1, _ATTEMPTS + 1):
            try:
                return attempt()
            except _RETRIED:
                if number == _ATTEMPTS or self._stop.wait(2.0**number / 10):
                    raise
        raise AssertionError("the last attempt returns or raises")


@dataclass
class _Parts:
    """The parts of one object, which several threads copy.

    Attributes:
        object: the object.
        starts: their offsets, and the object's end; empty until they are known.
        checks: checksums of the object.
        done: complete parts by number.
        has_failed: whether a part failed, so that the others are not needed.
        lock: held to change these fields.
    """

    object: RemoteObject
    starts: list[int] = field(default_factory=list)
    checks: tuple[Check, ...] = ()
    done: dict[int, PartRecord] = field(default_factory=dict)
    has_failed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


def _verify(checks: Sequence[Check], digests: dict[str, bytes]) -> None:
    for check in checks:
        if check.name in digests and digests[check.name] != check.expected:
            found, expected = digests[check.name].hex(), check.expected.hex()
            raise CorruptError(f"the content does not have the object's {check.name}: {found}, not {expected}")


def _digest_of(file: Path, one: Hash) -> bytes:
    with file.open("rb") as opened:
        while chunk := opened.read(_CHUNK):
            one.update(chunk)
    return one.digest()


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(descriptor, view, offset)
        view, offset = view[count:], offset + count
