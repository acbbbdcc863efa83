"""Ranks that shard a small model with FSDP2, for the tests of checkpoints that every rank writes."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import AdamW

from tests.training.checkpoint.parts import IDENTITY, KEEP_ALL, progress
from training.checkpoint.ranks import EveryRank
from training.checkpoint.stateful import StateRegistry
from training.checkpoint.store import CheckpointStore
from training.checkpoint.writer import AsyncCheckpointer
from training.config.schema import StrategySettings
from training.strategies.fully_sharded import FullySharded
from training.strategies.single_process import SingleProcess
from training.weight_average import WeightAverage

CPU = torch.device("cpu")


def network(seed: int = 0) -> nn.Module:
    """Weights of 7 and 2 rows: of 4 ranks, the last has no row of them. Buffers of floats and of a whole number."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 2))


class ShardedRun:
    """The network under a strategy, with its average."""

    def __init__(self, settings: StrategySettings | None, seed: int = 0) -> None:
        """Args: `settings` of FSDP2 or HSDP; None is one process."""

        def adam(module: nn.Module) -> AdamW:
            return AdamW(module.parameters(), lr=0.01)

        self.strategy = (
            SingleProcess(network(seed), adam)
            if settings is None
            else FullySharded(network(seed), adam, settings=settings, device=CPU)
        )
        self.average = WeightAverage(self.strategy.module, decay=0.9)
        self.step = 0

    def train(self) -> None:
        """One step on a batch that is a function of the step and the rank."""
        self.average.start()
        self.step += 1
        rank = dist.get_rank() if dist.is_initialized() else 0
        inputs = torch.randn(16, 8, generator=torch.Generator().manual_seed(100 * self.step + rank))
        self.strategy.optimizer.zero_grad()
        self.strategy.model(inputs).square().mean().backward()
        self.strategy.optimizer.step()
        self.average.update(self.step)

    def states(self) -> StateRegistry:
        """All state of the run."""
        return StateRegistry(**self.strategy.states(), ema=self.average)

    def save(self, writer: AsyncCheckpointer, *, metric: float | None = None, final: bool = False) -> None:
        """Save the run as it is."""
        writer.save(progress(self.step), self.states(), metric=metric, final=final)

    def whole(self) -> dict[str, Tensor]:
        """Copies of all tensors by file and name, on rank 0. A collective."""
        files = self.states().collect().tensors
        return {f"{file}:{name}": t.detach().clone() for file, named in files.items() for name, t in named.items()}


def writer_of(store: CheckpointStore, *, longest_wait: float = 120) -> AsyncCheckpointer:
    """This rank's writer."""
    return AsyncCheckpointer(
        store,
        ranks=EveryRank(CPU, longest_wait=longest_wait),
        identity=IDENTITY,
        retention=KEEP_ALL,
        start_step=0,
    )


def keep_reference(run: ShardedRun, path: Path) -> None:
    """Rank 0 writes the whole tensors to a file."""
    whole = run.whole()
    if dist.get_rank() == 0:
        save_file({name: value.contiguous() for name, value in whole.items()}, path)
