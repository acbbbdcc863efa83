"""A request for a profile, as a file in the run's folder: `profile/request` with a number of steps.

Rank 0 looks for it whenever the ranks agree on things anyway, and passes the number on to its peers (`Callback.asks`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from observability.profiling.window import FOLDER, write_atomically

MOST_STEPS = 1000
"""Steps that one profile may have; each takes up to some megabytes."""


@dataclass(frozen=True)
class ProfileRequest:
    """The request in a run's folder."""

    run_directory: Path

    @property
    def _path(self) -> Path:
        return self.run_directory / FOLDER / "request"

    def make(self, steps: int) -> None:
        """Ask for a profile of so many steps; it replaces a request that has not been seen yet."""
        self._path.parent.mkdir(exist_ok=True)
        write_atomically(self._path, f"{steps}\n".encode())

    def steps(self) -> int:
        """The number of steps that are asked for, 0 without a request. One that is damaged asks for a step."""
        try:
            text = self._path.read_text(encoding="utf-8").strip()
        except OSError:
            return 0
        return min(max(1, int(text)), MOST_STEPS) if text.isdecimal() else 1

    def withdraw(self) -> None:
        """Remove the request, if there is one."""
        with suppress(OSError):
            self._path.unlink()
