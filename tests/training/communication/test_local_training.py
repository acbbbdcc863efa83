"""Ranks that train alone: when they average, what that sends, and what DiLoCo makes of the average."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

from tests.training.communication.test_wire import CPU, network, sent_bytes
from tests.training.launch.ranks import on_ranks
from tests.training.runs import in_group
from training.config.schema import CommunicationSettings, PrecisionSettings
from training.errors import NonFiniteLossError
from training.launch.task import RankPlace
from training.precision import Precision
from training.strategies.data_parallel import DataParallel
from training.strategies.local_training import LocalTraining

Array = npt.NDArray[np.float32]
START, NODE_STEPS, LOCAL_STEPS = 2, 2, 4
NODES: dict[str, Any] = {"start_step": START, "node_steps": NODE_STEPS, "local_steps": LOCAL_STEPS, "ranks_per_node": 2}
RATE = 0.05


def sgd(module: nn.Module) -> SGD:
    return SGD(module.parameters(), lr=RATE)


def weights(module: nn.Module) -> Array:
    return torch.cat([value.detach().reshape(-1) for value in module.parameters()]).numpy().copy()


@dataclass(kw_only=True)
class Trained:
    """The weights of a rank after each step, what it has sent in it, and the weights and outputs of the run's model at the end."""

    weights: list[Array] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    node_bytes: list[int] = field(default_factory=list)
    model: Array
    outputs: Array


def train(place: RankPlace, settings: CommunicationSettings, *, steps: int, memory: torch.memory_format) -> Trained:
    """SGD without momentum, on samples of its own."""
    module = network().to(memory_format=memory)
    if settings.local_steps is None:
        strategy = DataParallel(module, sgd, device=CPU, communication=settings)
    else:
        ranks = settings.ranks_per_node
        strategy = LocalTraining(module, sgd, device=CPU, communication=settings, ranks_per_node=ranks)
    nothing = np.zeros(0, dtype=np.float32)
    found = Trained(model=nothing, outputs=nothing)
    for step in range(1, steps + 1):
        before, in_node = sent_bytes(), sent_bytes(group="undefined")
        strategy.start_step(step, scale=1.0)
        strategy.optimizer.zero_grad()
        own: Tensor = torch.randn(4, 64, generator=torch.Generator().manual_seed(10 * step + place.rank))
        strategy.model(own).square().mean().backward()
        strategy.optimizer.step()
        strategy.end_step(applied=True)
        found.weights.append(weights(strategy.module))
        found.bytes.append(sent_bytes() - before)
        found.node_bytes.append(sent_bytes(group="undefined") - in_node)
    found.model = weights(strategy.whole_module())
    strategy.synchronize_buffers()
    with torch.no_grad():
        found.outputs = strategy.infer(torch.ones(2, 64)).numpy()
    np.testing.assert_array_equal(weights(strategy.module), found.weights[-1])
    convolution = strategy.module.get_parameter("1.weight")
    assert convolution.is_contiguous(memory_format=memory)
    return found


def _all(place: RankPlace, sections: list[dict[str, Any]], *, steps: int) -> list[Trained]:
    os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"
    with in_group(place):
        return [
            train(place, CommunicationSettings(**one), steps=steps, memory=torch.contiguous_format) for one in sections
        ]


@pytest.fixture(scope="module")
def four() -> list[Trained]:
    """Four ranks on two nodes, after seven steps."""
    return [found for (found,) in on_ranks(4, _all, [NODES], steps=7)]


def equal_ranks(ranks: list[Trained], step: int) -> list[set[int]]:
    """The ranks with the same weights after a step, counted from 1."""
    groups: dict[bytes, set[int]] = {}
    for rank, found in enumerate(ranks):
        groups.setdefault(found.weights[step - 1].tobytes(), set()).add(rank)
    return list(groups.values())


def test_nodes_average_more_often_than_all_ranks_which_send_nothing_in_between(four: list[Trained]) -> None:
    alone, nodes, together = [{0}, {1}, {2}, {3}], [{0, 1}, {2, 3}], [{0, 1, 2, 3}]
    equal = [equal_ranks(four, step) for step in range(1, 8)]
    assert equal == [together, together, alone, nodes, alone, together, alone]
    size = four[0].weights[0].nbytes
    for rank in four:
        assert rank.bytes == [size, size, 0, size, 0, size, 0]
        assert rank.node_bytes == [0, 0, 0, size, 0, 0, 0]


def test_the_model_of_the_run_is_the_mean_of_the_ranks_and_evaluated_by_all(four: list[Trained]) -> None:
    """`train` compares the ranks' own weights before and after."""
    mean = np.mean([rank.weights[-1] for rank in four], axis=0)
    np.testing.assert_allclose(four[0].model, mean, rtol=1e-5, atol=1e-7)
    module = network()
    nn.utils.vector_to_parameters(torch.from_numpy(four[0].model), module.parameters())
    with torch.no_grad():
        outputs = module(torch.ones(2, 64)).numpy()
    for rank in four:
        np.testing.assert_array_equal(rank.outputs, outputs)


PLAIN_AVERAGE = {"outer_optimizer": "nesterov", "outer_learning_rate": 1.0, "outer_momentum": 0.0}
OUTER_RATE, MOMENTUM = 0.7, 0.9
CASES: dict[str, dict[str, Any]] = {
    "DDP": {},
    "every step": {"start_step": 0, "local_steps": 1, **PLAIN_AVERAGE},
    "local SGD": {"start_step": 1, "local_steps": 2},
    "average": {"start_step": 1, "local_steps": 2, **PLAIN_AVERAGE},
    "DiLoCo": {"start_step": 1, "local_steps": 2, "outer_optimizer": "nesterov"},
}


@pytest.fixture(scope="module")
def cases() -> dict[str, list[Trained]]:
    """What two ranks trained in seven steps, by case."""
    ranks = on_ranks(2, _all, list(CASES.values()), steps=7)
    return {name: [rank[index] for rank in ranks] for index, name in enumerate(CASES)}


def test_averages_after_every_step_are_ddp_and_plain_diloco_averages(cases: dict[str, list[Trained]]) -> None:
    for name, expected in (("every step", "DDP"), ("average", "local SGD")):
        for ours, plain in zip(cases[name], cases[expected], strict=True):
            np.testing.assert_allclose(ours.weights, plain.weights, rtol=1e-5, atol=1e-6, err_msg=name)


def test_diloco_moves_the_last_average_towards_the_next_with_nesterov_momentum(cases: dict[str, list[Trained]]) -> None:
    """Both ranks compute their local steps here again: SGD from the outer weights."""
    first, second = cases["DiLoCo"]
    outer, momentum = first.weights[0], np.zeros_like(first.weights[0])
    for end in (2, 4, 6):
        ends = [_after_two_steps(outer, rank, end) for rank in (0, 1)]
        gradient = outer - np.mean(ends, axis=0)
        momentum = MOMENTUM * momentum + gradient
        outer = outer - OUTER_RATE * (gradient + MOMENTUM * momentum)
        np.testing.assert_allclose(first.weights[end], outer, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(first.weights[end], second.weights[end])


def _after_two_steps(start: Array, rank: int, steps_before: int) -> Array:
    module = network()
    nn.utils.vector_to_parameters(torch.from_numpy(start.copy()), module.parameters())
    for step in (steps_before, steps_before + 1):
        own = torch.randn(4, 64, generator=torch.Generator().manual_seed(10 * step + rank))
        module.zero_grad()
        module(own).square().mean().backward()
        with torch.no_grad():
            for value in module.parameters():
                assert value.grad is not None
                value.sub_(RATE * value.grad)
    return weights(module)


def _diverged(place: RankPlace) -> str:
    """What a rank says after a step in which rank 1 has no finite gradient."""
    with in_group(place):
        settings = CommunicationSettings(start_step=0, local_steps=4)
        strategy = LocalTraining(network(), sgd, device=CPU, communication=settings)
        strategy.start_step(1, scale=1.0)
        (strategy.model(torch.ones(2, 64)).sum() * (math.nan if place.rank == 1 else 1.0)).backward()
        message = ""
        try:
            strategy.update(Precision(PrecisionSettings(), CPU), None)
        except NonFiniteLossError as error:
            message = str(error)
        return message


def test_a_rank_that_diverges_alone_says_so_without_its_peers() -> None:
    first, second = on_ranks(2, _diverged)
    assert not first
    assert second.startswith("step 1: the gradient of rank 1, which trains alone, is not finite")


def _channels_last(place: RankPlace) -> None:
    """`train` compares the memory order."""
    with in_group(place):
        settings = CommunicationSettings(start_step=0, local_steps=2)
        train(place, settings, steps=3, memory=torch.channels_last)


def test_averaged_weights_keep_their_memory_order() -> None:
    on_ranks(2, _channels_last)
