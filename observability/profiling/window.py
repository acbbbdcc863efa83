"""The files of a profile: `profile/step-00000101/` in the run's folder, named after the first profiled step.

    window.json         which steps, and of how many ranks; written by rank 0 as the window begins
    rank0.json.gz       the rank's trace, in Chrome's format; https://ui.perfetto.dev shows it
    rank0.steps.json    when the rank's steps were, on its own clock; written last, so it stands for a complete profile of the rank
    rank0.memory.pickle allocations on a GPU, if profile.memory is set; https://pytorch.org/memory_viz shows them
    analysis.json       what `observability.profiling.analysis` made of them

The profile of all ranks is complete once every `rank*.steps.json` is there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from pydantic import TypeAdapter, ValidationError

FOLDER: Final = "profile"
_WINDOW_FILE: Final = "window.json"
_ANALYSIS_FILE: Final = "analysis.json"

T = TypeVar("T")


class ProfileError(Exception):
    """A profile, or a rank's part of it, cannot be read; the message names the file and the reason."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """The steps of a profile, from `first` to `last`, and the number of ranks."""

    first: int
    last: int
    world: int

    @classmethod
    def planned(cls, first: int, steps: int, *, total_steps: int, world: int) -> Window | None:
        """The window of `steps` steps from `first` on, at most to the last step of the run; None beyond it."""
        last = min(first + steps - 1, total_steps)
        return cls(first=first, last=last, world=world) if first <= last else None

    @property
    def title(self) -> str:
        """The steps, in words."""
        return f"step {self.first}" if self.first == self.last else f"steps {self.first} to {self.last}"


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """A step of one rank; Unix times in seconds on the rank's clock.

    Attributes:
        began: when the step before it ended, or its epoch began; what follows is the report of a window of steps, a checkpoint, the wait
            for data, and the step itself.
        started: the data was there.
        ended: the step was done.
        data_seconds: the wait for data, up to `started`.
        checkpoint_seconds: how long a checkpoint delayed the step.
    """

    step: int
    began: float
    started: float
    ended: float
    data_seconds: float
    checkpoint_seconds: float

    @property
    def seconds(self) -> float:
        """Wall time of the step."""
        return self.ended - self.began


@dataclass(frozen=True, kw_only=True)
class RankSteps:
    """The profiled steps of a rank.

    Attributes:
        host: name of its machine.
        device: `cpu` or `cuda`.
        peak_bytes: most memory that tensors took on the GPU within the window; 0 on a CPU.
    """

    rank: int
    host: str
    device: str
    steps: list[StepTimes]
    peak_bytes: int = 0

    def since(self, base: float) -> RankSteps:
        """The same with times that count from `base`, a Unix time in seconds."""
        shifted = [
            replace(one, began=one.began - base, started=one.started - base, ended=one.ended - base)
            for one in self.steps
        ]
        return replace(self, steps=shifted)


_WINDOW = TypeAdapter(Window)
_RANK_STEPS = TypeAdapter(RankSteps)


@dataclass(frozen=True)
class ProfileFolder:
    """The folder of one profile."""

    path: Path

    @classmethod
    def of_step(cls, run_directory: Path, step: int) -> ProfileFolder:
        """The folder of the profile whose first step is `step`."""
        return cls(run_directory / FOLDER / f"step-{step:08d}")

    @classmethod
    def all_of(cls, run_directory: Path) -> list[ProfileFolder]:
        """The profiles of a run, by their first steps."""
        return [cls(path.parent) for path in sorted((run_directory / FOLDER).glob(f"step-*/{_WINDOW_FILE}"))]

    def trace(self, rank: int) -> Path:
        """A rank's trace."""
        return self.path / f"rank{rank}.json.gz"

    def memory(self, rank: int) -> Path:
        """A rank's memory snapshot."""
        return self.path / f"rank{rank}.memory.pickle"

    def steps_file(self, rank: int) -> Path:
        """The file with the times of a rank's steps."""
        return self.path / f"rank{rank}.steps.json"

    @property
    def analysis(self) -> Path:
        """The analysis."""
        return self.path / _ANALYSIS_FILE

    @property
    def window(self) -> Window:
        """Which steps were profiled.

        Raises:
            ProfileError: the file is missing or damaged.
        """
        return _read(self.path / _WINDOW_FILE, _WINDOW)

    def write_window(self, window: Window) -> None:
        """Create the folder, and write which steps are profiled; an earlier analysis of these steps is out of date."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.analysis.unlink(missing_ok=True)
        write_atomically(self.path / _WINDOW_FILE, _WINDOW.dump_json(window, indent=1))

    def rank_steps(self, rank: int) -> RankSteps:
        """The times of a rank's steps.

        Raises:
            ProfileError: the file is missing or damaged.
        """
        return _read(self.steps_file(rank), _RANK_STEPS)

    def write_rank_steps(self, steps: RankSteps) -> None:
        """Write the times of a rank's steps, which completes its profile."""
        write_atomically(self.steps_file(steps.rank), _RANK_STEPS.dump_json(steps, indent=1))

    def discard(self) -> None:
        """Forget an earlier profile of these steps, which a run that resumed from before them makes again; the traces stay."""
        for stale in (self.path / _WINDOW_FILE, self.analysis, *self.path.glob("rank*.steps.json")):
            stale.unlink(missing_ok=True)

    def has_a_rank(self) -> bool:
        """Whether at least one rank has completed its profile."""
        return any(self.path.glob("rank*.steps.json"))

    def is_complete(self) -> bool:
        """Whether every rank has completed its profile."""
        try:
            return not self.missing_ranks()
        except ProfileError:
            return False

    def missing_ranks(self) -> list[int]:
        """The ranks that have not completed their profile.

        Raises:
            ProfileError: which ranks there are is not known.
        """
        return [rank for rank in range(self.window.world) if not self.steps_file(rank).exists()]


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file, or replace it, in one go."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(content)
    partial.replace(path)


def _read(path: Path, adapter: TypeAdapter[T]) -> T:
    try:
        return adapter.validate_json(path.read_bytes())
    except FileNotFoundError:
        raise ProfileError(f"{path} does not exist") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise ProfileError(f"{path} is damaged: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
