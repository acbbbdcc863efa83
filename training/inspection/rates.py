"""How fast samples are read and trained on, and how many processes it takes to read them as fast."""

from __future__ import annotations

import math
import time

import numpy as np
import torch

from training.config.schema import TrainingSettings
from training.data.order import uniforms
from training.data.sample_order import sample_order
from training.data.types import DataBundle, Split
from training.device import rank_device
from training.models.registry import build_model
from training.objectives.registry import build_objective
from training.optim import build_optimizer, peak_learning_rate

_BATCH = 64
"""Samples read at once, when the speed of reading is measured."""


_NEGLIGIBLE = 100
"""Times that one core reads faster than a rank trains, from which on a process to read ahead saves less than it costs."""


def reading_rate(split: Split, *, augment: bool, seconds: float) -> float:
    """Samples per second that one core reads, in the order of an epoch, with augmentation as a run does.

    Args:
        split: the training split.
        augment: apply its augmentation.
        seconds: how long to measure at most; a smaller split is read once.
    """
    order = sample_order(split, seed=0, epoch=0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        split.read(order[:1])  # what only the first sample takes
        done, start = 0, time.perf_counter()
        while done < len(order) and (done == 0 or time.perf_counter() - start < seconds):
            positions = range(done, min(done + _BATCH, len(order)))
            drawn = (
                uniforms(seed=0, epoch=0, positions=positions, draws=split.draws) if augment and split.draws else None
            )
            split.read(order[positions.start : positions.stop], drawn)
            done = positions.stop
        return done / (time.perf_counter() - start)
    finally:
        torch.set_num_threads(threads)


def training_rate(settings: TrainingSettings, bundle: DataBundle, *, seconds: float) -> tuple[float, str]:
    """Samples per second that one rank trains on, without reading them, and the device it has on this machine.

    The model makes forward, backward and optimizer step on the same batch again and again, as large as that of a rank. Precision and
    compilation are not applied.

    Args:
        settings: model, objective, optimizer and batch.
        bundle: the dataset.
        seconds: how long to measure at most; at least two steps.

    Raises:
        SettingsError: model or objective do not fit the dataset.
    """
    rows = max(2, settings.loop.global_batch // settings.shares // settings.micro_batches)
    inputs, targets = bundle.train.read(np.arange(rows) % len(bundle.train))
    device = rank_device(settings.scale, index=0)
    objective = build_objective(settings.objective, bundle.spec)
    objective.check_targets(targets[:1], bundle.spec)
    module = build_model(settings.model, bundle.spec).to(device).train()
    peak = peak_learning_rate(settings.optimizer, settings.loop.global_batch)
    optimizer = build_optimizer(module, settings=settings.optimizer, learning_rate=peak)
    inputs, targets = inputs.to(device), targets.to(device)

    def step() -> None:
        optimizer.zero_grad()
        objective.measure(module(inputs), targets)[0].backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    step()
    steps, start = 0, time.perf_counter()
    while steps < 2 or time.perf_counter() - start < seconds:
        step()
        steps += 1
    return steps * rows / (time.perf_counter() - start), device.type


def loader_processes(*, needed: float, read: float) -> int:
    """Loader processes of one rank that read as fast as it trains; 0 where it reads a batch in a hundredth of a step or less.

    Args:
        needed: samples per second that a rank trains on.
        read: samples per second that one core reads.
    """
    return 0 if read >= _NEGLIGIBLE * needed else max(1, math.ceil(needed / read))
