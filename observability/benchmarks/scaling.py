"""Throughput with 1, 2 and 4 workers: the platform, as many independent processes, bare DDP, and Ray Train's documented loop.

Every worker has the same batch, so N workers do N times the work of one (weak scaling). On a machine with fewer cores than workers no
program scales, so the efficiency is measured against N processes that train the same model on the same batch at the same time and do not
communicate: what is missing is the cost of communication and of waiting for each other.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from observability.benchmarks.measure import Comparison, measure_alternately
from observability.benchmarks.timed_model import WARMUP_STEPS, mean_cost
from observability.benchmarks.timed_run import run_bare_ddp, run_platform, run_ray_documented, with_timed_model
from observability.runlog import Step, read_all, select
from training.config.schema import TrainingSettings

Side = Literal["platform", "independent", "bare DDP", "Ray's loop"]
"""A program; `independent` is bare DDP as one process per worker, without communication."""

SIDES: tuple[Side, ...] = get_args(Side)

GOAL = 0.97
"""Throughput of the platform relative to bare DDP: the reciprocal of the step-time goal of `overhead`."""

EPOCH_SAMPLES = 50_000
"""Samples of the epoch whose time is shown: as many as CIFAR-10 trains with, whose images have the same size."""

_BATCH = 16
"""Samples of a worker and step."""

_STEPS = WARMUP_STEPS + 20


@dataclass(frozen=True, kw_only=True)
class ScalingPoint:
    """Measurements of all programs with as many workers, taken alternately.

    Attributes:
        workers: number of workers.
        throughput: samples per second of all workers together, for each program one value a round.
        data_share: share of the platform's step time that rank 0 waits for data, one value a round.
    """

    workers: int
    throughput: dict[Side, list[float]]
    data_share: list[float]

    def median(self, side: Side) -> float:
        """Samples per second, in the median of the rounds."""
        return statistics.median(self.throughput[side])

    def efficiency(self, side: Side) -> float:
        """Throughput relative to independent processes, in the median of the rounds."""
        pairs = zip(self.throughput[side], self.throughput["independent"], strict=True)
        return statistics.median(mine / other for mine, other in pairs)

    def comparisons(self) -> list[Comparison]:
        """The platform's throughput against that of both programs that train one model."""
        others: tuple[Side, ...] = ("bare DDP", "Ray's loop")
        return [
            Comparison(
                name=f"throughput, {self.workers} worker{'s' * (self.workers != 1)}: {side}",
                unit="samples/s",
                ours=self.throughput["platform"],
                theirs=self.throughput[side],
                goal=GOAL,
                higher_is_better=True,
            )
            for side in others
        ]


def measure(workers: int, *, rounds: int, scratch: Path) -> ScalingPoint:
    """Train a ResNet-18 on 32 x 32 images with all programs alternately."""
    shares: list[float] = []

    def platform() -> float:
        folder = Path(tempfile.mkdtemp(dir=scratch))
        throughput = _throughput(run_platform, workers, folder)
        steps = select(read_all(folder), Step)[WARMUP_STEPS:]
        shares.append(sum(step.data_seconds for step in steps) / sum(step.seconds for step in steps))
        return throughput

    def independent() -> float:
        with ThreadPoolExecutor(workers) as pool:
            folders = [Path(tempfile.mkdtemp(dir=scratch)) for _ in range(workers)]
            return sum(pool.map(lambda folder: _throughput(run_bare_ddp, 1, folder), folders))

    def bare_ddp() -> float:
        return _throughput(run_bare_ddp, workers, Path(tempfile.mkdtemp(dir=scratch)))

    def rays_loop() -> float:
        return _throughput(run_ray_documented, workers, Path(tempfile.mkdtemp(dir=scratch)))

    measured = measure_alternately(rounds, platform, independent, bare_ddp, rays_loop)
    return ScalingPoint(workers=workers, throughput=dict(zip(SIDES, measured, strict=True)), data_share=shares)


def table(points: Sequence[ScalingPoint]) -> list[list[str]]:
    """A header, and a row for each number of workers; the speed-up is over the first number."""
    header = ["workers", f"epoch of {EPOCH_SAMPLES:,}", "throughput", "speed-up", "efficiency", "data", "independent"]
    first = points[0]
    rows = [
        [
            str(point.workers),
            f"{EPOCH_SAMPLES / point.median('platform'):.0f} s",
            f"{point.median('platform'):.1f} samples/s",
            f"{point.median('platform') / first.median('platform'):.2f}",
            f"{point.efficiency('platform'):.1%}",
            f"{statistics.median(point.data_share):.1%}",
            f"{point.median('independent'):.1f} samples/s",
        ]
        for point in points
    ]
    return [header, *rows]


def _throughput(run: Callable[[TrainingSettings, Path], None], workers: int, folder: Path) -> float:
    """Samples per second of all workers of a program, after its first steps."""
    run(with_timed_model(_settings(workers), folder), folder)
    return workers * _BATCH / mean_cost(folder).wall


def _settings(workers: int) -> TrainingSettings:
    """One epoch, because the documented loop knows no number of steps."""
    return TrainingSettings.model_validate(
        {
            "model": {"name": "resnet18", "options": {"stem": "cifar"}},
            "data": {
                "dataset": "synthetic",
                "augment": False,
                "options": {
                    "kind": "images",
                    "channels": 3,
                    "height": 32,
                    "width": 32,
                    "samples": workers * _BATCH * _STEPS,
                },
            },
            "loop": {"epochs": 1, "max_steps": _STEPS, "evaluate_every": 1000, "global_batch": workers * _BATCH},
            "scale": {"launcher": "torchrun", "workers": workers},
            "tracking": {"enabled": False},
        }
    )
