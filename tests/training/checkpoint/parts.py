"""Shared by the tests of checkpoints: a small run, its identity, and helpers to save and compare it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from training.checkpoint.manifest import Identity, TrainProgress
from training.checkpoint.ranks import OneRank
from training.checkpoint.retention import Retention
from training.checkpoint.state import ModelState, OptimizerState
from training.checkpoint.stateful import Stateful, StateRegistry
from training.checkpoint.store import CheckpointStore, VerifiedCheckpoint, local_store
from training.checkpoint.writer import AsyncCheckpointer

IDENTITY = Identity(
    model="mlp",
    dataset_fingerprint="d" * 64,
    global_batch=64,
    seed=0,
    world=1,
    platform_version="0.1.0",
    settings={"optimizer": {"name": "adamw", "learning_rate": 0.003}, "model": {"options": {}}},
)
KEEP_ALL = Retention(keep_last=1000, keep_best=0, higher_is_better=True)
OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], Optimizer]] = {
    "SGD": partial(torch.optim.SGD, lr=0.01, momentum=0.9),
    "Adam": partial(torch.optim.Adam, lr=0.01),
    "AdamW": partial(torch.optim.AdamW, lr=0.01),
}


class Values:
    """User-defined state of JSON values and tensors."""

    def __init__(self, **state: object) -> None:
        self.state: dict[str, Any] = state

    def state_dict(self) -> dict[str, Any]:
        """The state."""
        return self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Replace the state."""
        self.state = state_dict


class SmallRun:
    """A model with every kind of state (weights, buffers, moments) and its optimizer."""

    def __init__(self, optimizer: str = "AdamW", seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.step = 0

    def train(self, steps: int = 1) -> None:
        """Optimizer steps on batches that are a function of the step."""
        for _ in range(steps):
            self.step += 1
            generator = torch.Generator().manual_seed(self.step)
            inputs = torch.randn(32, 8, generator=generator)
            self.optimizer.zero_grad()
            self.model(inputs).square().mean().backward()
            self.optimizer.step()

    def states(self, **others: Stateful) -> StateRegistry:
        """The states of the run, and others."""
        return StateRegistry(
            model=ModelState(self.model), optimizer=OptimizerState(self.optimizer, self.model), **others
        )

    def save(
        self, checkpointer: AsyncCheckpointer, *, metric: float | None = None, final: bool = False, **others: Stateful
    ) -> float:
        """Save the run as it is."""
        return checkpointer.save(progress(self.step), self.states(**others), metric=metric, final=final)

    def load(self, checkpoint: VerifiedCheckpoint, **others: Stateful) -> list[str]:
        """Restore a checkpoint; returns the names of the states that it lacks."""
        self.step = checkpoint.progress.step
        return self.states(**others).restore(checkpoint)

    def tensors(self) -> dict[str, Tensor]:
        """Copies of all tensors by file and name."""
        files = self.states().collect().tensors
        return {f"{file}:{name}": t.detach().clone() for file, named in files.items() for name, t in named.items()}


def progress(step: int) -> TrainProgress:
    """How far a run of 10 steps an epoch has come after `step` steps."""
    return TrainProgress(step=step, epoch=step // 10 + 1, step_in_epoch=step % 10, samples=64 * step)


def checkpointer(store: CheckpointStore, *, retention: Retention = KEEP_ALL, start_step: int = 0) -> AsyncCheckpointer:
    """A writer for the small run."""
    return AsyncCheckpointer(store, ranks=OneRank(), identity=IDENTITY, retention=retention, start_step=start_step)


def saved_run(directory: Path, *steps: int) -> tuple[CheckpointStore, SmallRun]:
    """A store with checkpoints of the given steps, and the run after the last of them."""
    store, run = local_store(directory), SmallRun()
    with checkpointer(store) as writer:
        for step in steps:
            run.train(step - run.step)
            run.save(writer, final=True)
    return store, run


def newest(store: CheckpointStore) -> VerifiedCheckpoint:
    """The newest good checkpoint, which has to exist."""
    found = store.newest_good(IDENTITY)
    assert found is not None
    return found


def assert_same(left: dict[str, Tensor], right: dict[str, Tensor]) -> None:
    """Assert that two sets of tensors are equal bit for bit."""
    assert left.keys() == right.keys()
    different = [name for name in left if not torch.equal(left[name], right[name])]
    assert not different
