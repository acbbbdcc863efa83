"""FLOPs of the first micro-batch, without a change of what is computed, and the peak of a GPU by its name and precision."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils import flop_counter

from infra.spec.catalog import load_catalog
from training.config.schema import PrecisionSettings
from training.flops import FlopCount
from training.models.options import TransformerOptions
from training.models.transformer import Block
from training.peak_flops import PEAKS, Format, device_peak_flops, number_format, peak_flops

ROWS = 8


def counted(model: Callable[[Tensor], Tensor], inputs: Tensor) -> FlopCount:
    """The count of one forward and backward pass."""
    count = FlopCount()
    with count.counting(len(inputs)):
        model(inputs).sum().backward()  # type: ignore[no-untyped-call]
    return count


def test_layers_cost_two_flops_per_weight_and_output_forward_and_four_backward() -> None:
    """Nothing needs the gradient of the inputs, so the first layer computes that of its weights only."""
    model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))
    assert counted(model, torch.randn(ROWS, 10)).per_sample == 4 * (10 * 20) + 6 * (20 * 5)
    convolution = nn.Conv2d(3, 16, kernel_size=3, padding=1)
    assert counted(convolution, torch.randn(ROWS, 3, 12, 12)).per_sample == 4 * (3 * 3 * 3 * 16 * 12 * 12)


def test_a_transformer_block_costs_six_flops_per_weight_and_token_and_its_attention() -> None:
    width, length = 32, 24
    block = Block(TransformerOptions(width=width, heads=4), is_causal=True)
    tokens = torch.randn(ROWS, length, width, requires_grad=True)
    # Two products forward and, as the scores are computed again, five backward; masked scores count.
    attention = 14 * length**2 * width
    assert counted(block, tokens).per_sample == 6 * length * 12 * width**2 + attention


@pytest.mark.parametrize("layers", [1, 2])
def test_an_lstm_costs_two_flops_per_weight_and_position_forward_and_four_backward(layers: int) -> None:
    width, state, length = 16, 32, 10
    model = nn.LSTM(width, state, num_layers=layers, batch_first=True, bidirectional=True)
    inputs = torch.randn(ROWS, length, width, requires_grad=True)
    weights = sum(one.numel() for one in model.parameters() if one.dim() == 2)
    count = counted(lambda one: model(one)[0], inputs)
    assert (count.per_sample, count.problem) == (6 * length * weights, "")


def test_gradients_that_a_forward_pass_computes_count() -> None:
    """As a force does, the gradient of an energy by the positions: torch's counter by module fails there."""
    layer = nn.Linear(10, 10, bias=False)

    def force(points: Tensor) -> Tensor:
        points = points.detach().requires_grad_()
        (found,) = torch.autograd.grad(layer(points).square().sum(), points, create_graph=True)
        return found

    # Two products for the force, and for each of them two for the gradients of its factors.
    assert counted(force, torch.randn(ROWS, 10)).per_sample == (2 + 2 * 2) * 2 * 10 * 10


def test_only_the_first_micro_batch_is_counted() -> None:
    count, model = FlopCount(), nn.Linear(3, 2)
    for rows in (ROWS, 1000):
        with count.counting(rows):
            model(torch.randn(rows, 3)).sum().backward()
    assert count.per_sample == 4 * 3 * 2


def test_a_pass_of_its_own_counts_the_same_and_leaves_the_module_and_the_generator_alone() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.5), nn.Flatten(), nn.Linear(8 * 6 * 6, 5))
    inputs = torch.randn(ROWS, 3, 8, 8)
    expected = counted(model, inputs).per_sample
    model.zero_grad()
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    count = FlopCount()
    count.count_apart(model, inputs)
    assert (count.per_sample, count.problem) == (expected, "")
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_model_that_needs_values_is_named_as_the_problem() -> None:
    class Routed(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs) if float(inputs.sum()) > 0 else inputs[:, : self.out_features]

    count = FlopCount()
    count.count_apart(Routed(3, 2), torch.ones(ROWS, 3))
    assert count.per_sample is None
    assert count.problem.startswith("Routed cannot be counted without values: ")


def test_a_compiled_model_is_compiled_after_its_first_micro_batch() -> None:
    compiled: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., object]:
        compiled.append(graph)
        return graph.forward

    model = torch.compile(nn.Linear(3, 2), backend=backend)
    assert counted(model, torch.randn(ROWS, 3)).per_sample == 4 * 3 * 2
    assert compiled == []
    model(torch.randn(ROWS, 3))
    assert len(compiled) == 1


def test_a_formula_that_fails_leaves_the_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> int:
        raise AssertionError("shapes are incompatible")

    monkeypatch.setitem(flop_counter.flop_registry, torch.ops.aten.addmm, failing)
    model = nn.Linear(3, 2)
    count = counted(model, torch.randn(ROWS, 3))
    assert model.weight.grad is not None
    assert (count.per_sample, count.problem) == (None, "failing: shapes are incompatible")


def test_an_error_of_the_model_is_its_own() -> None:
    def fails(_: Tensor) -> Tensor:
        raise RuntimeError("of the model")

    with pytest.raises(RuntimeError, match="of the model"):
        counted(fails, torch.zeros(ROWS))


def test_the_name_that_the_driver_reports_gives_the_peak() -> None:
    rates: list[tuple[str, Format, float]] = [
        ("Tesla T4", "fp16", 65),
        ("NVIDIA L4", "bf16", 121),
        ("NVIDIA L40S", "bf16", 362),
        ("NVIDIA A100 80GB PCIe", "fp32", 19.5),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.5),
        ("NVIDIA H100 PCIe", "bf16", 756.5),
        ("NVIDIA H100 80GB HBM3", "fp8", 1979),
    ]
    for name, used, teraflops in rates:
        assert peak_flops(name, used) == pytest.approx(teraflops * 1e12), name


def test_an_unknown_gpu_a_missing_format_a_part_of_a_gpu_and_a_cpu_have_none() -> None:
    assert peak_flops("NVIDIA GeForce RTX 4090", "bf16") is None
    assert peak_flops("Tesla T4", "bf16") is None
    assert peak_flops("NVIDIA A10G", "fp8") is None
    assert peak_flops("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "bf16") is None
    assert device_peak_flops(torch.device("cpu"), PrecisionSettings()) is None


def test_single_precision_is_tf32_where_torch_permits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert number_format(PrecisionSettings(mode="bf16")) == "bf16"
    assert number_format(PrecisionSettings(mode="fp8")) == "fp8"
    assert number_format(PrecisionSettings()) == "tf32"
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert number_format(PrecisionSettings()) == "fp32"


def test_of_the_gpus_of_the_catalogue_only_the_graphics_cards_are_unknown() -> None:
    """Their data sheets give one figure, with sparsity and a 4-bit format."""
    models = {instance.gpu.model for instance in load_catalog().instances.values() if instance.gpu is not None}
    known = {words[0] for words in PEAKS}
    assert models - known == {"RTX PRO 4500", "RTX PRO Server 6000"}
