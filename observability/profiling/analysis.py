"""Analyses a profile, keeps the result beside it, and prints it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pydantic import TypeAdapter, ValidationError

from observability.history import RunHistory
from observability.profiling.activity import Activity, sort_activity
from observability.profiling.breakdown import RankTime, divide_time
from observability.profiling.intervals import Span
from observability.profiling.trace_file import TraceFile
from observability.profiling.verdict import RunFigures, Verdict, judge
from observability.profiling.window import ProfileError, ProfileFolder, RankSteps, Window, write_atomically
from observability.runlog import Step, read_all

_MICRO = 1e-6


@dataclass(frozen=True, kw_only=True)
class Analysis:
    """What a profile says.

    Attributes:
        window: the profiled steps.
        ranks: the ranks whose profiles could be read.
        problems: why the others could not.
        folder: name of the folder with the traces, in the run's.
    """

    window: Window
    ranks: list[RankTime]
    verdict: Verdict
    problems: list[str]
    folder: str


_ANALYSIS = TypeAdapter(Analysis)


def analyse(profile: ProfileFolder, run: RunFigures) -> Analysis:
    """Read the traces of a profile and judge them; the result is kept beside them.

    A rank whose profile is missing or damaged is left out, and named.

    Raises:
        ProfileError: no rank's profile can be read.
    """
    window = profile.window
    ranks: dict[int, tuple[RankSteps, Activity]] = {}
    problems: list[str] = []
    for rank in range(window.world):
        try:
            ranks[rank] = _read_rank(profile, rank)
        except ProfileError as error:
            problems.append(f"rank {rank} is left out: {error}")
    if not ranks:
        raise ProfileError("; ".join(problems))
    times = divide_time(ranks)
    found = Analysis(
        window=window,
        ranks=times,
        verdict=judge(times, run),
        problems=problems,
        folder=f"{profile.path.parent.name}/{profile.path.name}",
    )
    write_atomically(profile.analysis, _ANALYSIS.dump_json(found, indent=1))
    return found


def kept_analysis(run_directory: Path) -> Analysis | None:
    """The analysis of a run's newest profile that has been analysed; None without one, and of another version's file."""
    for profile in reversed(ProfileFolder.all_of(run_directory)):
        if profile.analysis.exists():
            try:
                return _ANALYSIS.validate_json(profile.analysis.read_bytes())
            except ValidationError:
                return None
    return None


def run_figures(run_directory: Path) -> RunFigures:
    """What the log and the settings of a run say; defaults where they say nothing."""
    history = RunHistory.from_events(read_all(run_directory))
    return RunFigures(
        checkpoint_share=_checkpoint_share(history.steps),
        loader_workers=int(history.setting("data.loader_workers") or 0),
        checkpoint_every=int(history.setting("checkpoint.every_steps") or 0),
        precision=str(history.setting("precision.mode") or "fp32"),
    )


def _checkpoint_share(steps: Sequence[Step]) -> float | None:
    """The share of checkpoints in the time of the steps; None without a step.

    The rest of a step counts with its median: a run's first step, and those in which the profiler starts and stops, take far longer.
    """
    if not steps:
        return None
    delays = sum(step.checkpoint_seconds for step in steps)
    return delays / (delays + len(steps) * median(step.seconds - step.checkpoint_seconds for step in steps))


def _read_rank(profile: ProfileFolder, rank: int) -> tuple[RankSteps, Activity]:
    steps = profile.rank_steps(rank)
    if not steps.steps:
        raise ProfileError(f"{profile.steps_file(rank)} has no step")
    header, events = TraceFile(profile.trace(rank)).read()
    relative = steps.since(header.base * _MICRO)
    spans = [(one.began / _MICRO, one.ended / _MICRO) for one in relative.steps]
    computing: list[Span] = [(one.started / _MICRO, one.ended / _MICRO) for one in relative.steps]
    activity = sort_activity(events, steps=spans, computing=computing)
    if not activity.operators:
        raise ProfileError(
            f"{profile.trace(rank)} has no operator within the steps of {profile.steps_file(rank).name}: the clock of its machine was "
            "set between them"
        )
    return relative, activity
