"""What a launcher hands to every rank, and what comes back. Plain data: the driver makes it without importing torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from training.config.schema import TrainingSettings


@dataclass(frozen=True, kw_only=True)
class RankTask:
    """The work of one attempt, the same for every rank.

    Attributes:
        settings: the run's settings.
        run_directory: the run's folder, absolute; all ranks must see the same one.
        attempt: 0 for the first group of workers of a driver, one more for each restart.
    """

    settings: TrainingSettings
    run_directory: Path
    attempt: int

    def dump(self) -> dict[str, Any]:
        """As JSON types, for a process boundary."""
        return {
            "settings": self.settings.model_dump(mode="json"),
            "run_directory": str(self.run_directory),
            "attempt": self.attempt,
        }

    @classmethod
    def load(cls, record: Mapping[str, Any]) -> RankTask:
        """The task that `dump` made the record of."""
        return cls(
            settings=TrainingSettings.model_validate(record["settings"]),
            run_directory=Path(record["run_directory"]),
            attempt=int(record["attempt"]),
        )


@dataclass(frozen=True, kw_only=True)
class RankPlace:
    """Where a rank stands among its peers, and where they meet."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    master_address: str
    master_port: int

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> RankPlace:
        """The place that torchrun's environment variables name; a process without them is a world of one.

        Raises:
            ValueError: a variable is not a number.
        """
        return cls(
            rank=int(environment.get("RANK", "0")),
            world=int(environment.get("WORLD_SIZE", "1")),
            local_rank=int(environment.get("LOCAL_RANK", "0")),
            local_world=int(environment.get("LOCAL_WORLD_SIZE", "1")),
            master_address=environment.get("MASTER_ADDR", "127.0.0.1"),
            master_port=int(environment.get("MASTER_PORT", "0")),
        )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a group of workers ended when no rank failed.

    Attributes:
        status: `done`, or `stopped` where a stop was asked for and the state is committed.
        step: optimizer steps that are committed.
        weights_sha256: hash of the final weights; empty unless done.
    """

    status: str
    step: int
    weights_sha256: str = ""

    def dump(self) -> dict[str, Any]:
        """As JSON types."""
        return {"status": self.status, "step": self.step, "weights_sha256": self.weights_sha256}


class WorkersFailedError(Exception):
    """A group of workers ended without an outcome.

    The ranks leave what went wrong in the run's folder (`training.failures`); the text here is the launcher's own view and
    serves where a rank died too suddenly to leave anything.
    """


class Launcher(Protocol):
    """Starts the ranks of one attempt and waits for them."""

    def launch(self, task: RankTask, *, on_phase: Callable[[str], None]) -> Outcome:
        """Run the attempt to its end; `on_phase` is told the parts of start-up as they begin.

        Raises:
            WorkersFailedError: a rank failed or died.
        """
        ...

    def close(self) -> None:
        """Stop what was started for all attempts."""
        ...
