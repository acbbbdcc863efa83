"""The hierarchical all-reduce between two nodes of two ranks: the gradients of a flat one, and half of its bytes between the nodes."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.distributed as dist
from torch.optim import SGD

from tests.training.communication.test_wire import CPU, network, sent_bytes
from tests.training.launch.ranks import on_ranks
from tests.training.runs import in_group
from training.communication import wire
from training.communication.nodes import BETWEEN, ranks_per_node
from training.config.schema import CommunicationSettings, TrainingSettings
from training.errors import SettingsError
from training.launch.task import RankPlace
from training.strategies.build import build_strategy
from training.strategies.data_parallel import DataParallel

Array = npt.NDArray[np.float32]
HOOKS = ("none", "fp16", "bf16")


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
        return {hook: _of_hook(place, hook) for hook in HOOKS}


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
