"""What travels: the bytes of every hook as torch's flight recorder counts them, and the loss that they cost."""

from __future__ import annotations

import json
import os
from math import prod
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import _dump_fr_trace_json
from torch.optim import Optimizer

from tests.training.launch.ranks import on_ranks
from tests.training.runs import in_group
from training.communication import wire
from training.communication.powersgd import PowerSgd
from training.config.schema import CommunicationSettings
from training.launch.task import RankPlace
from training.strategies.data_parallel import DataParallel

CPU = torch.device("cpu")
START = 2
POWERSGD: dict[str, Any] = {"hook": "powersgd", "start_step": START}
HOOKS: dict[str, dict[str, Any]] = {
    "none": {},
    "fp16": {"hook": "fp16"},
    "bf16": {"hook": "bf16"},
    "powersgd": POWERSGD,
    "powersgd, rank 1": {**POWERSGD, "rank": 1},
    "powersgd, higher rate": {**POWERSGD, "min_compression_rate": 20},
    "powersgd, cold": {**POWERSGD, "warm_start": False, "error_feedback": False},
}
_BYTES = {"Float": 4, "Half": 2, "BFloat16": 2}


def network() -> nn.Module:
    """Matrices that are worth compressing at rank 2, and one that is not; a convolution, biases, and equal shapes that are apart."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(576, 32),
        nn.ReLU(),
        nn.Linear(32, 48),
        nn.ReLU(),
        nn.Linear(48, 32),
        nn.ReLU(),
        nn.Linear(32, 48),
        nn.ReLU(),
        nn.Linear(48, 10),
    )


def adam(module: nn.Module) -> Optimizer:
    return torch.optim.Adam(module.parameters(), lr=3e-3)


def distributed(
    settings: CommunicationSettings, *, seed: int = 0, undoes: bool = False
) -> tuple[DataParallel, PowerSgd | None]:
    powersgd = PowerSgd(settings, seed=seed, undoes=undoes) if settings.hook == "powersgd" else None

    return DataParallel(network(), adam, device=CPU, communication=settings, powersgd=powersgd), powersgd


def backward(strategy: DataParallel, powersgd: PowerSgd | None, step: int, loss: Tensor, *, scale: float = 1.0) -> None:
    """The gradients of a step, averaged over the ranks."""
    if powersgd is not None:
        powersgd.start_step(step, scale=scale)
    (loss * scale).backward()  # type: ignore[no-untyped-call]


def sent_bytes(*, group: str | None = None) -> int:
    """Bytes that this rank has given to all-reduces so far, as torch's flight recorder counts them; of the groups of a name, or of all."""
    entries = json.loads(_dump_fr_trace_json()).get("entries", [])
    return sum(
        prod(sizes) * _BYTES[kind]
        for entry in entries
        if "all_reduce" in entry["profiling_name"] and group in {None, entry["process_group"][1]}
        for sizes, kind in zip(entry["input_sizes"], entry["input_dtypes"], strict=True)
    )


def _bytes_of_a_step(place: RankPlace) -> dict[str, tuple[int, int]]:
    """Bytes of a rank's all-reduces in a step, counted and computed, by hook."""
    os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
    found = {}
    with in_group(place):
        for hook, sections in HOOKS.items():
            settings = CommunicationSettings(bucket_megabytes=0.02, **sections)
            strategy, powersgd = distributed(settings)
            counted = [0]
            for step in range(1, START + 3):
                strategy.optimizer.zero_grad()
                backward(strategy, powersgd, step, strategy.model(torch.ones(2, 64) / step).square().sum())
                counted.append(sent_bytes())
            found[hook] = counted[-1] - counted[-2], wire.bytes_sent(strategy.module.parameters(), settings)
            dist.barrier()  # gloo aborts if its group ends in one of its own threads, where the last callback of a hook may still run
    return found


def test_the_bytes_of_a_step_are_those_that_the_hook_promises() -> None:
    for rank in on_ranks(2, _bytes_of_a_step):
        assert rank.keys() == HOOKS.keys()
        for hook, (counted, computed) in rank.items():
            assert counted == computed > 0, hook


def described(weights: list[Tensor], settings: CommunicationSettings) -> list[str]:
    return list(wire.describe(weights, settings, world=8, ranks_per_node=4))


def test_a_hook_says_what_it_saves() -> None:
    weights = [torch.zeros(1000, 500, requires_grad=True), torch.zeros(1000, requires_grad=True)]
    powersgd = CommunicationSettings(hook="powersgd", rank=2, start_step=10)
    assert described(weights, CommunicationSettings(hook="bf16")) == [
        "communication.hook=bf16 reduces the 2 MB of a step's gradients to 1 MB (1 : 2)"
    ]
    assert described(weights, powersgd) == [
        "communication.hook=powersgd reduces the 2 MB of a step's gradients to 0.016 MB (1 : 125) from step 11 on"
    ]


def test_nodes_and_local_steps_say_what_they_save() -> None:
    weights = [torch.zeros(1000, 500, requires_grad=True), torch.zeros(1000)]
    assert described(weights, CommunicationSettings(hook="fp16", hierarchical=True))[1] == (
        "communication.hierarchical=true: of the 1 MB of a step's gradients, each of a node's 4 ranks sends 0.25 MB between the 2 nodes"
    )
    (line,) = described(weights, CommunicationSettings(local_steps=16, node_steps=4, start_step=10))
    assert line == (
        "communication.local_steps=16: from step 11 on the 8 ranks average their 2 MB of weights every 16 steps, and among the 4 of a "
        "node every 4, in place of the gradients of every step"
    )
