"""A soak: many faults of random kinds at random steps, all from one seed, happen to one run, which ends as if they had not."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from observability.runlog import TrainingStarted
from tests.faults import injections as faults
from tests.faults.cell import two_ranks
from tests.faults.proof import Cost, prove, uninterrupted
from tests.faults.run import FaultedRun, run_here
from training.config.schema import TrainingSettings

_GAP: Final = (20, 60)
"""Fewest and most steps between two faults."""

_STEPS_PER_EPOCH: Final = 21

_KINDS: Final[Mapping[str, tuple[int, Callable[[FaultedRun], None]]]] = {
    "SIGKILL of rank 1": (40, faults.kill_rank(1)),
    "SIGKILL of rank 0": (40, faults.kill_rank(0)),
    "SIGSTOP of rank 1": (8, faults.stop_rank(1)),
    "SIGSTOP of rank 0": (4, faults.stop_rank(0)),
    "SIGKILL of an agent": (4, faults.kill_agent(1)),
    "SIGKILL of the driver": (2, faults.kill_driver),
    "SIGKILL of the driver, and a bit flipped in the newest checkpoint": (2, faults.kill_driver_and_flip_a_bit),
}
"""Weight and action of each kind. Those that start Ray again are rare, because they take longest."""


@dataclass(frozen=True, kw_only=True)
class Soaked:
    """What a soak has cost."""

    cost: Cost
    recoveries: Mapping[str, Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A fault of the plan: its kind, and the step from which it happens."""

    kind: str
    step: int


def plan(count: int, *, seed: int) -> list[Planned]:
    """The faults of a seed, in their order."""
    chance = random.Random(seed)
    weights = [weight for weight, _ in _KINDS.values()]
    step, planned = 0, []
    for kind in chance.choices(list(_KINDS), weights, k=count):
        step += chance.randint(*_GAP)
        planned.append(Planned(kind=kind, step=step))
    return planned


def settings(planned: Sequence[Planned]) -> TrainingSettings:
    """A run that is long enough for all of them, and restarts as often."""
    epochs = planned[-1].step // _STEPS_PER_EPOCH + 20
    often = {"restarts": len(planned), "delay": 0.0}
    return two_ranks(
        loop={"epochs": epochs, "evaluate_every": epochs},
        scale={"collective_timeout": 2},
        recovery=dict.fromkeys(("lost_process", "communication", "hang"), often),
    )


def soak(planned: Sequence[Planned], *, say: Callable[[str], None]) -> Soaked:
    """Let all of them happen to one run."""
    chosen = settings(planned)
    say(f"uninterrupted run of {chosen.loop.epochs} epochs")
    weights = uninterrupted(chosen)
    recoveries: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    with run_here(chosen) as run:
        run.start()
        began = 0.0
        for number, one in enumerate(planned, start=1):
            run.wait_for_step(one.step)
            began = time.time()
            _KINDS[one.kind][1](run)
            if run.driver.process.poll() is not None:
                run.start()
            run.wait_for(lambda event: isinstance(event, TrainingStarted) and event.time > began)  # noqa: B023 - called at once
            seconds = time.time() - began
            recoveries[one.kind].append(seconds)
            say(f"fault {number} of {len(planned)}: {one.kind} at step {one.step}; trains again after {seconds:.1f} s")
        ended = run.end()
        assert ended.status == 0, ended.err
        return Soaked(cost=prove(run, weights_sha256=weights, fault=began), recoveries=recoveries)


def describe(soaked: Soaked, *, seed: int) -> list[str]:
    """The result in lines of Markdown."""
    cost, recoveries = soaked.cost, soaked.recoveries
    count = sum(map(len, recoveries.values()))
    proven = (
        f"{count} faults from seed {seed} in one run of {cost.wall:.0f} s: equal weights, every sample once per epoch, "
        f"{cost.lost_steps} steps trained again, nothing left behind."
    )
    kinds = [
        f"| {kind} | {len(seconds)} | {statistics.median(seconds):.1f} s | {max(seconds):.1f} s |"
        for kind, seconds in recoveries.items()
        if seconds
    ]
    return [proven, "", "| fault | times | trains again after (median) | at most |", "|---|---|---|---|", *kinds]
