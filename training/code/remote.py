"""A code folder at the other end of a command, e.g. of `kubectl exec`, that runs `training.code.agent`."""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

from infra.spec.errors import PlatformError
from training.code.folder import ChangedError, Content, Listing
from training.code.frames import Message, receive
from training.code.selection import Selection

_SECONDS = 60.0
_STOP_SECONDS = 5.0
_CHUNK = 2**16


class RemoteFolder:
    """A folder that an agent serves; every method raises ConnectionError if the agent does not answer, and is then of no use."""

    def __init__(self, command: Sequence[str], *, seconds: float = _SECONDS) -> None:
        """Start the command.

        Args:
            command: starts the agent.
            seconds: how long an answer may pause.
        """
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        # A session of its own: Ctrl-C ends the caller, which synchronizes once more and closes the pipe.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, bufsize=0, start_new_session=True
        )
        self._buffer = b""
        self._seconds = seconds

    def __enter__(self) -> RemoteFolder:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the agent."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(OSError):
                stream.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        self._process.kill()
        self._process.wait()
        self._said.close()

    def listing(self) -> Listing:
        """Its files.

        Raises:
            PlatformError: the folder is too large, or has a name that cannot be copied.
        """
        fields = self._ask({"operation": "list"}).fields
        return Listing(hashes=fields["hashes"], selection=Selection(files=fields["files"], left_out=fields["left_out"]))

    def read(self, path: str) -> Content:
        """A file, whose hash is compared with the one it was sent with.

        Raises:
            ChangedError: it is gone.
            PlatformError: it cannot be read.
        """
        answer = self._ask({"operation": "read", "path": path})
        content = Content(data=answer.data, is_executable=bool(answer.fields["is_executable"]))
        if content.sha256 != answer.fields["sha256"]:
            raise PlatformError(f"{path} arrived with sha256 {content.sha256}, {answer.fields['sha256']} was sent")
        return content

    def write(self, path: str, content: Content, *, replaces: str | None) -> None:
        """Write a file, which the agent verifies; raises like `LocalFolder.write`."""
        fields = {"path": path, "sha256": content.sha256, "is_executable": content.is_executable, "replaces": replaces}
        self._ask({"operation": "write", **fields}, content.data)

    def delete(self, path: str, *, sha256: str) -> None:
        """Delete a file; raises like `LocalFolder.delete`."""
        self._ask({"operation": "delete", "path": path, "sha256": sha256})

    def line(self) -> bytes:
        """The next line of an answer."""
        while b"\n" not in self._buffer:
            if not self._fill():
                return b""
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line + b"\n"

    def exactly(self, count: int) -> bytes:
        """The next bytes of an answer."""
        parts, missing = [self._buffer[:count]], count - len(self._buffer[:count])
        self._buffer = self._buffer[count:]
        while missing and self._fill():
            parts.append(self._buffer[:missing])
            self._buffer, missing = self._buffer[missing:], missing - len(parts[-1])
        return b"".join(parts)

    def _ask(self, fields: dict[str, object], data: bytes = b"") -> Message:
        self._send(Message(fields=fields, data=data).encode())
        answer = receive(self)
        if answer is None:
            raise ConnectionError(self._last_words())
        if "changed" in answer.fields:
            raise ChangedError(answer.fields["changed"])
        if "error" in answer.fields:
            raise PlatformError(answer.fields["error"])
        return answer

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        pipe, left = self._process.stdin.fileno(), memoryview(data)
        os.set_blocking(pipe, False)
        while left:
            _, writable, _ = select.select([], [pipe], [], self._seconds)
            if not writable:
                raise ConnectionError(f"the session took no data for {self._seconds:g} s")
            try:
                left = left[os.write(pipe, left[:_CHUNK]) :]
            except BrokenPipeError:
                return  # what it has printed before it ended says why: the answer is read next

    def _fill(self) -> bool:
        """Wait for output; False at its end."""
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], self._seconds)
        if not readable:
            raise ConnectionError(f"the session did not answer for {self._seconds:g} s")
        got = os.read(self._process.stdout.fileno(), _CHUNK)
        self._buffer += got
        return bool(got)

    def _last_words(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        self._said.seek(0)
        return " ".join(self._said.read().decode(errors="replace").split())[-300:] or "the connection ended"
