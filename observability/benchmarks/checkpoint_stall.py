"""How long a checkpoint blocks the training loop, compared with a plain copy of its tensors."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import torch
from torch import nn

from observability.benchmarks.measure import Comparison
from training.checkpoint.manifest import Identity, TrainProgress
from training.checkpoint.ranks import OneRank
from training.checkpoint.retention import Retention
from training.checkpoint.state import ModelState, OptimizerState
from training.checkpoint.stateful import StateRegistry
from training.checkpoint.store import local_store
from training.checkpoint.writer import AsyncCheckpointer

GOAL = 1.3
_WIDTH = 2944  # a square weight of 34.7 MB; with AdamW's two moments 104 MB


def compare(*, rounds: int, scratch: Path) -> Comparison:
    """Compare the stall of `AsyncCheckpointer.save` for 100 MB of state with `copy_` of the same tensors to allocated memory."""
    torch.set_num_threads(1)
    model = nn.Linear(_WIDTH, _WIDTH, bias=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    model(torch.ones(1, _WIDTH)).sum().backward()
    optimizer.step()
    live = [model.weight.detach(), *(v for v in optimizer.state[model.weight].values() if v.ndim)]
    copied = [torch.zeros_like(tensor) for tensor in live]
    folder = scratch / "stall"
    shutil.rmtree(folder, ignore_errors=True)
    identity = Identity(model="linear", dataset_fingerprint="", global_batch=1, seed=0, world=1, platform_version="")
    states = StateRegistry(model=ModelState(model), optimizer=OptimizerState(optimizer, model))
    stalls, copies = [], []
    writer = AsyncCheckpointer(
        local_store(folder),
        ranks=OneRank(),
        identity=identity,
        retention=Retention(keep_last=1, keep_best=0, higher_is_better=True),
        start_step=0,
    )
    with writer:
        writer.reserve(states)
        _wait_for_reserve(writer)
        for step in range(1, rounds + 1):
            start = time.perf_counter()
            for target, tensor in zip(copied, live, strict=True):
                target.copy_(tensor)
            copies.append(time.perf_counter() - start)
            progress = TrainProgress(step=step, epoch=1, step_in_epoch=step, samples=step)
            stalls.append(writer.save(progress, states, metric=None))
            while not writer.poll():
                time.sleep(0.01)
    return Comparison(name="checkpoint of 100 MB, stall", unit="s", ours=stalls, theirs=copies, goal=GOAL)


def _wait_for_reserve(writer: AsyncCheckpointer) -> None:
    """Wait as a run does, which takes many steps between `reserve` in its first step and its first save."""
    time.sleep(1.0)
    writer.poll()
