"""Limits the GPU memory of a rank, and says what to change when memory runs out, or a loader process ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from training.config.schema import ComputeSettings, LoopSettings, TrainingSettings
from training.config.strategy import schedule_accepts
from training.errors import LoaderProcessError, OutOfMemoryError
from training.failures import REMEDY_OF_LOST_LOADER
from training.recovery.causes import is_out_of_memory, lost_loader

_ADVICE_OF_TORCH = " If reserved but unallocated memory"
"""Where its own advice begins, which names variables and not settings."""


def limit_memory(settings: ComputeSettings, device: torch.device) -> None:
    """Limit what this process may allocate on its GPU to `compute.memory_fraction` of the GPU's memory."""
    if settings.memory_fraction is not None and device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(settings.memory_fraction, device)


@contextmanager
def explained_in_training(settings: TrainingSettings, *, step: Callable[[], int]) -> Iterator[None]:
    """Explain that memory ran out in training.

    Args:
        settings: of the run.
        step: the step that is being computed.

    Raises:
        OutOfMemoryError: memory ran out; names the micro-batch and the settings that need less.
        LoaderProcessError: a process of the data loader was killed.
    """
    try:
        yield
    except (torch.OutOfMemoryError, RuntimeError, MemoryError) as error:
        _refuse_lost_loader(error)
        if not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(
            f"step {step()}: out of memory with {_rows(settings)} samples at a time (loop.global_batch="
            f"{settings.loop.global_batch}, scale.workers={settings.scale.workers}, {_division(settings.loop)}): {_first_line(error)}",
            remedy="; or ".join(_remedies(settings)),
        ) from error


@contextmanager
def explained_in_evaluation(settings: TrainingSettings) -> Iterator[None]:
    """Explain that memory ran out in an evaluation.

    Raises:
        OutOfMemoryError: memory ran out; names the batch.
        LoaderProcessError: a process of the data loader was killed.
    """
    try:
        yield
    except (torch.OutOfMemoryError, RuntimeError, MemoryError) as error:
        _refuse_lost_loader(error)
        if not is_out_of_memory(error):
            raise
        batch = settings.loop.evaluation_batch
        raise OutOfMemoryError(
            f"evaluation: out of memory with {batch} samples at a time (loop.evaluation_batch): {_first_line(error)}",
            remedy=f"set loop.evaluation_batch={max(1, min(batch // 2, _rows(settings)))}; metrics change by rounding at most",
        ) from error


def _refuse_lost_loader(error: BaseException) -> None:
    if how := lost_loader(error):
        raise LoaderProcessError(how, remedy=REMEDY_OF_LOST_LOADER) from error


def _rows(settings: TrainingSettings) -> int:
    """Samples of the largest micro-batch of a rank."""
    return settings.loop.global_batch // (settings.shares * settings.micro_batches)


def _division(loop: LoopSettings) -> str:
    if loop.logical_shards is not None:
        return f"loop.logical_shards={loop.logical_shards}"
    return f"loop.accumulation={loop.accumulation}"


def _remedies(settings: TrainingSettings) -> Iterator[str]:
    """Settings that need less memory, those without an effect on the result first."""
    loop, compute = settings.loop, settings.compute
    share = loop.global_batch // settings.shares
    finer = (
        None
        if loop.logical_shards is not None
        else next(
            (
                number
                for number in range(loop.accumulation + 1, share + 1)
                if share % number == 0 and schedule_accepts(number, settings.strategy)
            ),
            None,
        )
    )
    if finer is not None:
        yield (
            f"set loop.accumulation={finer}, which computes {share // finer} samples at a time; batch norm aside, the gradient is the "
            "same"
        )
    if loop.logical_shards is not None and loop.global_batch % (2 * loop.logical_shards) == 0:
        yield (
            f"set loop.logical_shards={2 * loop.logical_shards}, which computes {_rows(settings) // 2} samples at a time; batch norm and "
            "dropout aside, the gradient is the same"
        )
    if compute.activation_checkpointing == "off":
        yield "compute.activation_checkpointing=selective or full, which keeps fewer activations"
    elif compute.activation_checkpointing == "selective":
        yield "compute.activation_checkpointing=full"
    if settings.precision.mode == "fp32":
        yield "precision.mode=bf16"
    if settings.scale.workers > 1 and settings.strategy.name == "ddp":
        yield "strategy.name=fsdp2, which shards weights and optimizer state over the ranks"
    if settings.scale.gpu and not compute.allocator.expandable_segments:
        yield "compute.allocator.expandable_segments=true, against fragmentation"
    if compute.memory_fraction is not None:
        yield f"a higher compute.memory_fraction than {compute.memory_fraction:g}"
    yield "a smaller model, or devices with more memory"


def _first_line(error: BaseException) -> str:
    line = str(error).partition("\n")[0].partition(_ADVICE_OF_TORCH)[0].strip()
    return line or type(error).__name__
