"""The task that a launcher passes to every rank, and the outcome. Plain data, so that the driver imports no torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from training.code.kept import RunCode
from training.config.schema import TrainingSettings

OUTCOME_FILE = "outcome.json"


@dataclass(frozen=True, kw_only=True)
class RankTask:
    """One attempt to run the training; the same for every rank.

    Attributes:
        settings: the run's settings.
        run_directory: absolute path of the run's folder, shared by all ranks.
        attempt: number of restarts by this driver.
        code: the run's own code; None without.
    """

    settings: TrainingSettings
    run_directory: Path
    attempt: int
    code: RunCode | None = None

    def dump(self) -> dict[str, Any]:
        """The task as JSON types, to pass it to another process."""
        return {
            "settings": self.settings.model_dump(mode="json"),
            "run_directory": str(self.run_directory),
            "attempt": self.attempt,
            "code": None if self.code is None else self.code.dump(),
        }

    @classmethod
    def load(cls, record: Mapping[str, Any]) -> RankTask:
        """The task from the result of `dump`."""
        return cls(
            settings=TrainingSettings.model_validate(record["settings"]),
            run_directory=Path(record["run_directory"]),
            attempt=int(record["attempt"]),
            code=None if record["code"] is None else RunCode.load(record["code"]),
        )


@dataclass(frozen=True, kw_only=True)
class RankPlace:
    """A rank's position in the process group, and the group's rendezvous address.

    Attributes:
        gpu: index of the rank's GPU among those that its process can see; None if that is its local rank.
    """

    rank: int
    world: int
    local_rank: int
    local_world: int
    master_address: str
    master_port: int
    gpu: int | None = None

    @property
    def gpu_index(self) -> int:
        """Index of the rank's GPU among those that its process can see."""
        return self.local_rank if self.gpu is None else self.gpu

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> RankPlace:
        """Read torchrun's environment variables; without them, the world size is 1.

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
    """Result of an attempt in which no rank failed.

    Attributes:
        status: `done`; or, with the state committed, `stopped` after a requested stop, or `moving` if another attempt continues on other
            workers.
        step: number of committed optimizer steps.
        weights_sha256: hash of the final weights; empty unless `done`.
        reason: why it is moving.
    """

    status: str
    step: int
    weights_sha256: str = ""
    reason: str = ""

    def dump(self) -> dict[str, Any]:
        """The outcome as JSON types."""
        return {"status": self.status, "step": self.step, "weights_sha256": self.weights_sha256}


class WorkersFailedError(Exception):
    """An attempt ended without an outcome.

    The ranks record their errors in the run's folder (`training.failures`). The message here is the launcher's view, for ranks that died
    without a record.

    Attributes:
        exits: exit status of each rank that the launcher saw end, negative for a signal; None if it does not know the status.
        world: number of ranks of the attempt; None if it is the number of workers in the settings.
    """

    def __init__(self, message: str, *, exits: Mapping[int, int | None] | None = None) -> None:
        super().__init__(message)
        self.exits = exits or {}
        self.world: int | None = None


def unheard(line: str) -> None:
    """For a caller that shows no notices."""
    del line


class Launcher(Protocol):
    """Starts the ranks of one attempt and waits for them."""

    def launch(
        self, task: RankTask, *, on_phase: Callable[[str], None], notify: Callable[[str], None] = unheard
    ) -> Outcome:
        """Run the attempt to its end.

        Args:
            task: the attempt.
            on_phase: called with each phase of the start-up.
            notify: called with what the user should know of the workers, a line each.

        Raises:
            WorkersFailedError: a rank failed or died.
        """
        ...

    def close(self) -> None:
        """Stop everything that outlives an attempt."""
        ...
