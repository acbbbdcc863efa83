"""How a step is divided when the number of workers changes: the global batch stays, accumulation adapts.

A worker computes no more samples at a time than it did, so that they fit into its memory, and no fewer than it has to. With half the
workers and twice the accumulation the micro-batches are the very same ones (`training.data.order.BatchPlan`).
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from observability.quantities import counted
from training.config.schema import TrainingSettings
from training.errors import SettingsError


@dataclass(frozen=True, kw_only=True)
class StepDivision:
    """How the samples of a step are divided.

    Attributes:
        global_batch: samples of a step.
        workers: number of ranks.
        accumulation: micro-batches of a rank.
    """

    global_batch: int
    workers: int
    accumulation: int

    @property
    def micro_batch(self) -> int:
        """Samples that a rank computes at a time."""
        return self.global_batch // (self.workers * self.accumulation)

    @property
    def text(self) -> str:
        """For a report, e.g. `2 workers x 2 micro-batches of 16 samples`."""
        parts = (counted(self.workers, "worker"), counted(self.accumulation, "micro-batch"))
        return f"{' x '.join(parts)} of {counted(self.micro_batch, 'sample')}"


def division_of(settings: TrainingSettings) -> StepDivision:
    """How the settings divide a step."""
    return StepDivision(
        global_batch=settings.loop.global_batch,
        workers=settings.scale.workers,
        accumulation=settings.micro_batches,
    )


def resized(settings: TrainingSettings, workers: int) -> tuple[TrainingSettings, str]:
    """The settings of a run for another number of workers, with the least accumulation whose micro-batches are no larger than its.

    A function of its arguments alone: a run that goes from 4 workers to 2 and back to 4 should be given the settings it began with both
    times, so that it divides its steps as at first. With `loop.logical_shards` the micro-batches are the shards, whoever computes them.

    Args:
        settings: as the run began.
        workers: number of ranks to go on with.

    Returns:
        The settings to go on with, and a line for the report; empty if the number of workers stays.

    Raises:
        SettingsError: so many workers cannot share the batch equally, or do not fit another setting; names the nearest numbers that do.
            Or the strategy is a pipeline.
    """
    began = division_of(settings)
    if workers == began.workers:
        return settings, ""
    if settings.strategy.name == "pipeline":
        raise SettingsError(
            f"scale.workers={workers} instead of {began.workers}: the workers of a pipeline have different layers",
            remedy="resume with as many workers, or with strategy.name=ddp or fsdp2",
        )
    if problem := _problem(settings, workers):
        raise SettingsError(
            f"scale.workers={workers} {problem}", remedy=f"use {nearest(fitting_workers(settings), workers)}"
        )
    changed = _changed(settings, workers)
    text = f"{division_of(changed).text}, instead of {began.text}; the global batch stays {began.global_batch}"
    return changed, text


def fitting_workers(settings: TrainingSettings) -> list[int]:
    """The numbers of workers that a run can go on with, ascending; its own is one of them."""
    shared = settings.loop.logical_shards or settings.loop.global_batch
    divisors = (number for number in range(1, shared + 1) if shared % number == 0)
    return [number for number in divisors if not _problem(settings, number)]


def check_size(settings: TrainingSettings, workers: int) -> None:
    """Refuse a number of workers that an elastic run cannot continue with.

    Raises:
        SettingsError: the run is not elastic, or the number is not in its range or does not divide its batch; names the nearest that work.
    """
    scale = settings.scale
    if not scale.is_elastic:
        raise SettingsError(
            f"scale.workers={scale.workers} is not a range, so the run keeps its number of workers",
            remedy=f"stop it, and resume it with SET=scale.workers={workers}, or with SET=scale.workers=1-{max(workers, scale.workers)} "
            "to resize it later",
        )
    least = scale.min_workers or 1
    fitting = [number for number in fitting_workers(settings) if least <= number <= scale.workers]
    if workers not in fitting:
        raise SettingsError(
            f"workers={workers}: the run can have {', '.join(map(str, fitting))} of scale.workers={least}-{scale.workers}, which divide "
            f"loop.global_batch={settings.loop.global_batch}",
            remedy=f"use {nearest(fitting, workers)}",
        )


def _problem(settings: TrainingSettings, workers: int) -> str:
    """Why a run cannot go on with so many workers; empty if it can."""
    loop = settings.loop
    if loop.logical_shards is not None and loop.logical_shards % workers:
        return f"cannot share loop.logical_shards={loop.logical_shards} equally"
    if loop.global_batch % workers:
        return f"cannot share loop.global_batch={loop.global_batch} equally"
    try:
        TrainingSettings.model_validate(_changed(settings, workers).model_dump())
    except ValidationError as error:
        return f"does not fit: {error.errors()[0]['msg'].removeprefix('Value error, ')}"
    return ""


def _changed(settings: TrainingSettings, workers: int) -> TrainingSettings:
    """The settings with so many workers, which divide the batch, and their accumulation."""
    loop = settings.loop
    if loop.logical_shards is None:
        loop = loop.model_copy(update={"accumulation": _least_accumulation(division_of(settings), workers)})
    scale = settings.scale.model_copy(update={"workers": workers})
    return settings.model_copy(update={"loop": loop, "scale": scale})


def _least_accumulation(began: StepDivision, workers: int) -> int:
    of_a_worker = began.global_batch // workers
    return next(
        number
        for number in range(1, of_a_worker + 1)
        if of_a_worker % number == 0 and of_a_worker // number <= began.micro_batch
    )


def nearest(fitting: list[int], workers: int) -> str:
    """The numbers next to one that does not fit, e.g. `2 or 4`; `fitting` is ascending."""
    lower = [number for number in fitting if number < workers]
    higher = [number for number in fitting if number > workers]
    return " or ".join(str(number) for number in (*lower[-1:], *higher[:1]))
