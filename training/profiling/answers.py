"""What has become of each request to a job, as a file in the run's folder that the next ranks look up.

The run's log has the same events for people. Rank 0 would keep all ranks waiting while it searches the log of a long run for one.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from observability.profiling.window import FOLDER, write_atomically
from observability.runlog import ProfileAnswered, decode, encode


@dataclass(frozen=True)
class Answers:
    """The newest answer to each request to a run."""

    run_directory: Path

    def newest(self, request: str) -> ProfileAnswered | None:
        """The newest answer to a request, by its ID; None before the first, and of a damaged file."""
        with suppress(OSError, ValueError):
            found = decode(self._path(request).read_text(encoding="utf-8"))
            return found if isinstance(found, ProfileAnswered) else None
        return None

    def write(self, answer: ProfileAnswered) -> None:
        """Keep an answer. One that cannot be written does not fail the run."""
        path = self._path(answer.request)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, encode(answer).encode())

    def _path(self, request: str) -> Path:
        return self.run_directory / FOLDER / "requests" / f"{request}.json"
