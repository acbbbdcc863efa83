"""What travels: the bytes of every hook as torch counts them, and half of them between nodes in a hierarchical all-reduce."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import _dump_fr_trace_json
from torch.optim import SGD, Optimizer

from tests.training.launch.ranks import on_ranks
from tests.training.runs import in_group
from training.communication import wire
from training.communication.nodes import BETWEEN, ranks_per_node
from training.communication.powersgd import PowerSgd
from training.config.schema import CommunicationSettings, TrainingSettings
from training.errors import SettingsError
from training.launch.task import RankPlace
from training.strategies.build import build_strategy
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


def distributed(settings: CommunicationSettings, *, undoes: bool = False) -> tuple[DataParallel, PowerSgd | None]:
    powersgd = PowerSgd(settings, seed=0, undoes=undoes) if settings.hook == "powersgd" else None
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


Array = npt.NDArray[np.float32]
HOOKS_OF_GRADIENTS = ("none", "fp16", "bf16")


@dataclass(frozen=True, kw_only=True)
class Found:
    """A step's gradients by flat and by hierarchical all-reduce, bytes of this rank between nodes, and what the user was told."""

    flat: Array
    hierarchical: Array
    counted: int
    computed: int
    told: list[str]


def _gradients(place: RankPlace) -> dict[str, Found]:
    os.environ["TORCH_FR_BUFFER_SIZE"] = "1000"
    with in_group(place):
        return {hook: _of_hook(place, hook) for hook in HOOKS_OF_GRADIENTS}


def _of_hook(place: RankPlace, hook: str) -> Found:
    gradients: list[Array] = []
    told: list[str] = []
    for sections in ({"hook": hook}, {"hook": hook, "hierarchical": True, "ranks_per_node": 2}):
        settings = TrainingSettings.model_validate({"communication": sections, "scale": {"workers": 4}})
        strategy = build_strategy(
            network(),
            lambda module: SGD(module.parameters(), lr=0.1),
            settings=settings,
            place=place,
            device=CPU,
            report=told.append,
        )
        assert isinstance(strategy, DataParallel)
        before = sent_bytes(group=BETWEEN)
        own = torch.randn(4, 64, generator=torch.Generator().manual_seed(place.rank))
        strategy.model(own).square().mean().backward()
        found = [p.grad.reshape(-1) for p in strategy.module.parameters() if p.grad is not None]
        gradients.append(torch.cat(found).numpy().copy())
    computed = wire.bytes_between_nodes(strategy.module.parameters(), settings.communication, ranks_per_node=2)
    counted = sent_bytes(group=BETWEEN) - before
    dist.barrier()
    return Found(flat=gradients[0], hierarchical=gradients[1], counted=counted, computed=computed, told=told)


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Found]]:
    """What each of the four ranks found."""
    return on_ranks(4, _gradients)


@pytest.mark.parametrize(("hook", "rounding"), [("none", 2**-22), ("fp16", 2**-9), ("bf16", 2**-6)])
def test_the_gradients_are_those_of_a_flat_all_reduce_and_half_of_their_bytes_are_sent_between_nodes(
    ranks: list[dict[str, Found]], hook: str, rounding: float
) -> None:
    """Sums of four values in another order: within a few units in the last place of the largest."""
    values = ranks[0]["none"].flat.size
    for rank in ranks:
        limit = rounding * np.abs(rank[hook].flat).max()
        for expected in (rank[hook].flat, rank["none"].flat):
            np.testing.assert_allclose(rank[hook].hierarchical, expected, rtol=4 * rounding, atol=limit)
        np.testing.assert_array_equal(rank[hook].hierarchical, ranks[0][hook].hierarchical)
        assert rank[hook].counted == rank[hook].computed
        assert rank[hook].counted == pytest.approx(values / 2 * (4 if hook == "none" else 2), rel=1e-4)
    (line,) = ranks[0]["none"].told
    assert line.endswith("sends 0.0477 MB between the 2 nodes")


def _started(place: RankPlace, *, nodes: list[int]) -> tuple[int, str]:
    """The ranks of a node, if a launcher has started these numbers of ranks on the nodes; and the error."""
    starts = [sum(nodes[:index]) for index in range(len(nodes))]
    start, size = next((s, n) for s, n in zip(starts, nodes, strict=True) if s <= place.rank < s + n)
    started = replace(place, local_rank=place.rank - start, local_world=size)
    with in_group(place):
        try:
            return ranks_per_node(CommunicationSettings(hierarchical=True), started, CPU), ""
        except SettingsError as refused:
            return 0, str(refused)


@pytest.mark.parametrize(
    ("nodes", "ranks", "message"),
    [
        ([2, 2], 2, ""),
        ([3, 1], 0, "equal numbers of consecutive ranks on every node, got [1, 3]"),
        ([4], 0, "the launcher has started 4 of 4 ranks on each"),
    ],
)
def test_nodes_are_as_the_launcher_has_filled_them(nodes: list[int], ranks: int, message: str) -> None:
    for found, refusal in on_ranks(4, _started, nodes=nodes):
        assert found == ranks
        assert message in refusal
