"""What the loop waits for a checkpoint, against the plain copy of its tensors."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import torch
from torch import nn

from observability.benchmarks.measure import Comparison
from training.checkpoint.manifest import Identity, TrainProgress
from training.checkpoint.retention import Retention
from training.checkpoint.state import ModelState, OptimizerState
from training.checkpoint.stateful import StateRegistry
from training.checkpoint.store import local_store
from training.checkpoint.writer import AsyncCheckpointer

GOAL = 1.3
_WIDTH = 2944  # a square weight of 34.7 MB, thrice with AdamW's two moments: 104 MB


def compare(*, rounds: int, scratch: Path) -> Comparison:
    """Stall of `AsyncCheckpointer.save` for 100 MB of state, against `copy_` of the same tensors into warm memory."""
    torch.set_num_threads(1)
    model = nn.Linear(_WIDTH, _WIDTH, bias=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    model(torch.ones(1, _WIDTH)).sum().backward()
    optimizer.step()
    live = [model.weight.detach(), *(v for v in optimizer.state[model.weight].values() if v.ndim)]
    warm = [torch.zeros_like(tensor) for tensor in live]
    folder = scratch / "stall"
    shutil.rmtree(folder, ignore_errors=True)
    identity = Identity(
        model="linear", dataset_fingerprint="", global_batch=1, seed=0, world=1, settings_sha256="", platform_version=""
    )
    states = StateRegistry(model=ModelState(model), optimizer=OptimizerState(optimizer, model))
    stalls, copies = [], []
    writer = AsyncCheckpointer(
        local_store(folder),
        identity=identity,
        retention=Retention(keep_last=1, keep_best=0, higher_is_better=True),
        start_step=0,
    )
    with writer:
        writer.reserve(states)
        _wait_for_reserve(writer)
        for step in range(1, rounds + 1):
            began = time.perf_counter()
            for target, tensor in zip(warm, live, strict=True):
                target.copy_(tensor)
            copies.append(time.perf_counter() - began)
            progress = TrainProgress(step=step, epoch=1, step_in_epoch=step, samples=step)
            stalls.append(writer.save(progress, states, metric=None))
            while not writer.poll():
                time.sleep(0.01)
    return Comparison(name="checkpoint of 100 MB, stall", unit="s", ours=stalls, theirs=copies, goal=GOAL)


def _wait_for_reserve(writer: AsyncCheckpointer) -> None:
    """A run has many steps between its first one, which reserves, and its first save."""
    time.sleep(1.0)
    writer.poll()
