"""Blocks with random numbers and state of their own are computed again as the first time, or refused."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from itertools import count
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from training.errors import SettingsError
from training.recomputation import check_recomputation, recompute_blocks

GLOBAL = np.random.default_rng(1)
NUMBERS = count(1)


class Drawing(nn.Module):
    """A layer that leaves itself out or scales its outputs, as a number says that it draws, or counts."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.kind, self.calls = kind, 0
        self.seen: list[int] = []
        self.numpy, self.python, self.torch = np.random.default_rng(1), random.Random(1), torch.Generator()
        self.legacy = {"of": np.random.RandomState(1)}

    def forward(self, inputs: Tensor, *, scale: float = 1.0) -> Tensor:
        outputs: Tensor = inputs + scale * self.drawn() * torch.tanh(self.inner(inputs))
        return outputs if self.kind != "python" or random.random() < 0.5 else inputs

    def drawn(self) -> float:
        self.calls += 1
        self.seen.append(self.calls)
        draws: dict[str, Callable[[], float]] = {
            "numpy": lambda: float(np.random.rand()),
            "own-numpy": self.numpy.random,
            "own-python": self.python.random,
            "own-torch": lambda: float(torch.rand((), generator=self.torch)),
            "own-legacy": lambda: float(self.legacy["of"].rand()),
            "counter": lambda: 1 / self.calls,
            "list": lambda: 1 / len(self.seen),
            "of-the-module": GLOBAL.random,
            "iterator": lambda: float(next(NUMBERS)),
        }
        return draws.get(self.kind, lambda: 1.0)()


def model(kind: str, mode: Literal["off", "full", "selective"]) -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Sequential(Drawing(kind), Drawing(kind)), nn.Linear(4, 2))
    if mode != "off":
        recompute_blocks(made, mode, model="own")
    return made


def trained(module: nn.Module, *, compiled: bool = False) -> list[Any]:
    """The gradients of three steps, what the generators draw after each, and the state in the end."""
    random.seed(2)
    np.random.seed(2)
    GLOBAL.bit_generator.state = np.random.PCG64(2).state
    found: list[Any] = []
    compute = torch.compile(module, backend="aot_eager") if compiled else module
    for seed in range(3):
        compute(torch.randn(8, 4, generator=torch.Generator().manual_seed(seed))).square().sum().backward()
        found += [one.grad.clone() for one in module.parameters() if one.grad is not None]
        found += [random.random(), float(np.random.rand())]
    return [*found, *([one.calls, one.seen] for one in module.modules() if isinstance(one, Drawing))]


KINDS = ("python", "numpy", "own-numpy", "own-python", "own-torch", "own-legacy", "of-the-module", "counter", "list")


@pytest.mark.parametrize("mode", ["full", "selective"])
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_draw_and_count_as_without_checkpointing(kind: str, mode: Literal["full", "selective"]) -> None:
    recomputed = model(kind, mode)
    check_recomputation(recomputed, torch.randn(2, 4), model="own", is_compiled=False)
    torch.testing.assert_close(trained(recomputed), trained(model(kind, "off")), rtol=0, atol=0)


def test_a_block_that_computes_something_else_the_second_time_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match=r"block 0\.0 of model\.name=own"):
        check_recomputation(model("iterator", "full"), torch.randn(2, 4), model="own", is_compiled=False)


def test_a_block_that_changes_its_inputs_is_refused() -> None:
    made = nn.Sequential(Doubling(), nn.Linear(4, 2))
    recompute_blocks(made, "full", model="own")
    with pytest.raises(SettingsError, match="block 0 of"):
        check_recomputation(made, torch.randn(2, 4), model="own", is_compiled=False)


def test_the_backward_passes_of_a_graph_that_is_kept_compute_it_again_alike() -> None:
    gradients = []
    for mode in ("off", "full"):
        module = model("counter", mode)
        loss = module(torch.ones(2, 4)).square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
        gradients.append([one.grad for one in module.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=0)


def test_a_compiled_step_repeats_what_torch_cannot_trace_and_a_buffer_changed_in_place_is_refused() -> None:
    torch.testing.assert_close(trained(model("counter", "full"), compiled=True), trained(model("counter", "off")))
    made = nn.Sequential(nn.Sequential(Running(), Running()), nn.Linear(4, 2))
    recompute_blocks(made, "full", model="own")
    check_recomputation(made, torch.randn(2, 4), model="own", is_compiled=False)
    with pytest.raises(SettingsError, match=r"block 0\.0 of"):
        check_recomputation(made, torch.randn(2, 4), model="own", is_compiled=True)


class Running(nn.Module):
    """A block that divides by a scale that it changes in place."""

    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(()))

    def forward(self, inputs: Tensor) -> Tensor:
        self.scale.mul_(0.9).add_(0.1 * inputs.detach().std())
        outputs: Tensor = self.inner(inputs / self.scale)
        return outputs


class Doubling(nn.Module):
    """A block that changes its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.inner(inputs.mul_(2))
        return outputs


def test_a_block_takes_named_arguments() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([Drawing("none")])

        def forward(self, inputs: Tensor) -> Tensor:
            outputs: Tensor = self.blocks[0](inputs, scale=2.0)
            return outputs

    torch.manual_seed(0)
    plain = Named()
    expected = plain(torch.ones(2, 4))
    recompute_blocks(plain, "full", model="own")
    assert torch.equal(plain(torch.ones(2, 4)), expected)


class Wide(nn.Module):
    """A block with activations that are much larger than its inputs; its layers can be called without it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 400), nn.Tanh(), nn.Linear(400, 4))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.direct(inputs)

    def direct(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.inner(inputs)
        return outputs


class Layered(nn.Module):
    """Two layers of two blocks each, kept in one way or another."""

    def __init__(self, layout: str) -> None:
        super().__init__()
        self.layout = layout
        pairs = [nn.ModuleList([Wide(), Wide()]) for _ in range(2)]
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(4))])
        layouts: dict[str, Callable[[], nn.Module]] = {
            "pairs": lambda: nn.ModuleList(pairs),
            "named": lambda: nn.ModuleDict({"first": pairs[0], "second": pairs[1]}),
            "nested": lambda: nn.ModuleList([nn.ModuleList(pairs)]),
            "mixed": lambda: nn.ModuleList([nn.ModuleList([nn.LayerNorm(4), *pair, self.scales]) for pair in pairs]),
            "deeper": lambda: Part(nn.ModuleList(pairs)),
        }
        self.layers = layouts.get(layout, layouts["pairs"])()

    def forward(self, inputs: Tensor) -> Tensor:
        for one in self.layers.modules() if self.layout != "deeper" else [self.layers]:
            if isinstance(one, Wide | Part):
                inputs = one.direct(inputs) if isinstance(one, Wide) and self.layout == "direct" else one(inputs)
        outputs: Tensor = inputs * self.scales[0]
        return outputs


class Part(nn.Module):
    """A part of a model that computes layers."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, inputs: Tensor) -> Tensor:
        for one in self.layers.modules():
            inputs = one(inputs) if isinstance(one, Wide) else inputs
        return inputs


def bytes_kept(module: nn.Module) -> int:
    """What a forward pass leaves allocated for the backward pass."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        outputs = module(torch.ones(100, 4))
    del outputs
    return sum(one.self_cpu_memory_usage for one in recorded.events() or ())


@pytest.mark.parametrize("layout", ["pairs", "named", "nested", "mixed", "deeper"])
def test_blocks_in_lists_of_lists_dictionaries_and_parts_keep_less_memory_and_have_the_same_gradients(
    layout: str,
) -> None:
    plain = Layered(layout)
    again = copy.deepcopy(plain)
    recompute_blocks(again, "full", model="own")
    check_recomputation(again, torch.randn(2, 4), model="own", is_compiled=False)
    for one in (plain, again):
        one(torch.ones(100, 4)).square().sum().backward()
    gradients = [[weight.grad for weight in one.parameters()] for one in (plain, again)]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=0)
    assert bytes_kept(again) < bytes_kept(plain) / 4


def test_blocks_that_could_not_keep_less_or_are_never_called_are_refused() -> None:
    single = nn.Sequential(nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]))
    with pytest.raises(SettingsError, match=r"activation_checkpointing=full: model\.name=own has no blocks of several"):
        recompute_blocks(single, "full", model="own")
    direct = Layered("direct")
    recompute_blocks(direct, "full", model="own")
    with pytest.raises(SettingsError, match=r"model\.name=own never calls its block layers\.0\.0"):
        check_recomputation(direct, torch.randn(2, 4), model="own", is_compiled=False)
