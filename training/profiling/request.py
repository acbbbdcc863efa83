"""Requests for a profile, as a file that rank 0 looks for whenever the ranks agree on things anyway (`Callback.asks`).

On the machine of the run it is `profile/request` in the run's folder, and gone once it is seen. For a job it is in a ConfigMap that the
workers mount (`platform_charts.jobs.requests`), and stays until whoever asked removes it.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated

from pydantic import StringConstraints, TypeAdapter, ValidationError

from observability.profiling.window import FOLDER, write_atomically

MOST_STEPS = 1000
"""Steps that one profile may have; each takes up to some megabytes."""

_ID_LENGTH = 8


@dataclass(frozen=True, kw_only=True)
class ProfileRequest:
    """A request.

    Attributes:
        steps: number of steps to profile.
        memory: whether to write a snapshot of each GPU's memory too.
        id: tells it from every other one, so that it is met once.
    """

    steps: int
    memory: bool = False
    id: Annotated[str, StringConstraints(pattern=f"^[0-9a-f]{{{_ID_LENGTH}}}$")] = field(
        default_factory=lambda: uuid.uuid4().hex[:_ID_LENGTH]
    )

    def dump(self) -> str:
        """The content of its file."""
        return _REQUEST.dump_json(self).decode()

    @classmethod
    def parse(cls, content: bytes) -> ProfileRequest:
        """The request in a file. One that is damaged asks for a step; its ID is made of the content."""
        try:
            found = _REQUEST.validate_json(content)
        except ValidationError:
            found = cls(steps=1, id=sha256(content).hexdigest()[:_ID_LENGTH])
        return replace(found, steps=min(max(1, found.steps), MOST_STEPS))

    @property
    def number(self) -> int:
        """What the ranks have to know of it, as a number that is not 0."""
        return 2 * self.steps + self.memory


_REQUEST = TypeAdapter(ProfileRequest)


def numbered(number: int) -> tuple[int, bool]:
    """Steps and memory of the request with this `number`."""
    return number // 2, number % 2 == 1


@dataclass(frozen=True)
class RequestFile:
    """The file with the request in a run's folder."""

    run_directory: Path

    @property
    def _path(self) -> Path:
        return self.run_directory / FOLDER / "request"

    def make(self, request: ProfileRequest) -> None:
        """Ask for a profile; it replaces a request that has not been seen yet."""
        self._path.parent.mkdir(exist_ok=True)
        write_atomically(self._path, request.dump().encode())

    def read(self) -> ProfileRequest | None:
        """The request; None without one."""
        return read_request(self._path)

    def withdraw(self) -> None:
        """Remove the request, if there is one."""
        with suppress(OSError):
            self._path.unlink()


def read_request(path: Path) -> ProfileRequest | None:
    """The request in a file; None without one."""
    try:
        return ProfileRequest.parse(path.read_bytes())
    except OSError:
        return None
