"""Runs the cases in turn on the same ranks, and reads from log, counters and profile of each run what its steps took."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from observability.benchmarks.communication.cases import BATCH, MEASURED_STEPS, WARM_UP_STEPS, Case
from observability.benchmarks.communication.ranks import TrainedRun, ranks_on
from observability.benchmarks.communication.wire import expected_bytes
from observability.benchmarks.hosts import Host
from observability.benchmarks.measure import Comparison
from observability.profiling.analysis import analyse, run_figures
from observability.profiling.window import ProfileFolder
from observability.runlog import Evaluated, Step, read_all, select

GOAL = 1.0
"""Time per sample relative to the baseline."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """One run of a case.

    Attributes:
        seconds: of a step, in the mean of the measured ones.
        samples: of a step.
        sent: bytes that a host sent in a step, in the mean of the hosts.
        payload: those without headers.
        exposed: seconds of a step in which rank 0 had its gradients and waited for those of its peers, in the mean of the measured steps.
        profiled_exposed: seconds of a step in which rank 0 communicated and did not compute, in the mean of the profiled ones.
        profiled_seconds: of such a step.
        loss: on the test split, at the end.
    """

    seconds: float
    samples: int
    sent: float
    payload: float
    exposed: float
    profiled_exposed: float
    profiled_seconds: float
    loss: float

    @property
    def per_batch(self) -> float:
        """Seconds for as many samples as a step of most cases has."""
        return self.seconds * BATCH / self.samples


@dataclass(kw_only=True)
class Measured:
    """A case and its rounds.

    Attributes:
        expected_bytes: that a host sends in a step, as computed from the shapes of the weights.
        baseline: what it is compared with, measured in the same rounds; None of a baseline.
    """

    case: Case
    expected_bytes: float
    baseline: Measured | None = None
    rounds: list[Round] = field(default_factory=list)

    def median(self, value: Callable[[Round], float]) -> float:
        """A value of its rounds."""
        return statistics.median(map(value, self.rounds))

    @property
    def ratios(self) -> list[float]:
        """Time per sample relative to the baseline, round by round."""
        others = (self.baseline or self).rounds
        return [mine.per_batch / other.per_batch for mine, other in zip(self.rounds, others, strict=True)]

    def comparison(self, against: Measured) -> Comparison:
        """The time for `BATCH` samples against that of another case, for the gate of regressions."""
        return Comparison(
            name=f"communication: {self.case.name} against {against.case.name}",
            unit="s",
            ours=[one.per_batch for one in self.rounds],
            theirs=[one.per_batch for one in against.rounds],
            goal=GOAL,
        )

    def dump(self) -> dict[str, Any]:
        """The measurement as JSON types."""
        return {
            "name": self.case.name,
            "settings": self.case.sections,
            "ranks_per_host": self.case.ranks_per_host,
            "baseline": None if self.baseline is None else self.baseline.case.name,
            "expected_bytes": self.expected_bytes,
            "rounds": [asdict(one) for one in self.rounds],
        }


def plan(groups: Sequence[Sequence[Case]], *, hosts: int) -> list[list[Measured]]:
    """The cases of each group before their first round, on so many hosts; the first of a group is the baseline of the others."""
    return [_planned(group, hosts) for group in groups]


def _planned(group: Sequence[Case], hosts: int) -> list[Measured]:
    expected = [expected_bytes(case, case.settings(hosts=hosts)) for case in group]
    baseline = Measured(case=group[0], expected_bytes=expected[0])
    others = zip(group[1:], expected[1:], strict=True)
    return [baseline, *(Measured(case=case, expected_bytes=sent, baseline=baseline) for case, sent in others)]


def measure(
    group: Sequence[Measured], hosts: Sequence[Host], *, rounds: int, scratch: Path, on_round: Callable[[], None]
) -> None:
    """Train the cases in turn, every other round backwards, so that a drift of the machine's load favours none.

    Args:
        group: cases with as many ranks on a host, which get their rounds.
        hosts: that train them.
        rounds: runs of each case.
        scratch: for the folders of the runs.
        on_round: called after each round.

    Raises:
        TrainingFailedError: a rank failed.
    """
    per_host = group[0].case.ranks_per_host
    _say(f"measuring: {len(hosts) * per_host} ranks on {len(hosts)} hosts start ...")
    with ranks_on(hosts, per_host=per_host, folder=Path(tempfile.mkdtemp(dir=scratch))) as ranks:
        for number in range(rounds):
            for result in group if number % 2 == 0 else reversed(group):
                _say(f"measuring: {result.case.name}, round {number + 1} of {rounds} ...")
                result.rounds.append(read_round(ranks.train(result.case.settings(hosts=len(hosts)))))
                _say(f"  {result.rounds[-1].seconds:.3f} s per step")
            on_round()


def read_round(run: TrainedRun) -> Round:
    """What the steps of a run took."""
    events = read_all(run.folder)
    steps = select(events, Step)
    measured = steps[WARM_UP_STEPS : WARM_UP_STEPS + MEASURED_STEPS]
    start, end = steps[WARM_UP_STEPS - 1].time, measured[-1].time
    sent = run.wire.sent_between(start, end)
    (profile,) = ProfileFolder.all_of(run.folder)
    rank_0 = analyse(profile, run_figures(run.folder)).ranks[0]
    return Round(
        seconds=(end - start) / len(measured),
        samples=measured[-1].samples,
        sent=statistics.mean(one.bytes for one in sent) / len(measured),
        payload=statistics.mean(one.payload for one in sent) / len(measured),
        exposed=statistics.mean(step.communication_seconds or 0.0 for step in measured),
        profiled_exposed=rank_0.transfer + rank_0.waiting,
        profiled_seconds=rank_0.step,
        loss=select(events, Evaluated)[-1].loss,
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
