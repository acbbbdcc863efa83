"""How a step is computed: memory order, compilation and activation checkpointing change the weights by rounding or not at all."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from observability.runlog import Evaluated, read_all, select
from tests.training.runs import LANGUAGE, exported, run_alone, small_settings, train
from training import preflight
from training.compute import KERNELS, arranged
from training.config.schema import ComputeSettings, ModelSettings
from training.data.types import SampleSpec
from training.errors import PreflightError, SettingsError
from training.launch.task import Outcome
from training.models.options import TransformerOptions
from training.models.registry import build_model
from training.models.transformer import transformer
from training.preflight import Machine
from training.recomputation import recompute_blocks

CONSTANT: dict[str, Any] = {"name": "constant"}


def assert_close(first: Path, second: Path) -> None:
    """Check that two runs ended in weights that differ by rounding only, but do differ in how they were computed or not at all."""
    other = exported(second)
    for name, value in exported(first).items():
        torch.testing.assert_close(value, other[name], rtol=2e-2, atol=2e-3)


def test_convolutions_have_their_weights_in_channels_last_order_and_other_samples_are_refused() -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3))
    images = SampleSpec(shape=(3, 8, 8), outputs=2)
    found = arranged(module, ComputeSettings(channels_last=True), images)(torch.randn(2, 3, 8, 8))
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert arranged(module, ComputeSettings(), images) is module
    with pytest.raises(SettingsError, match=r"is for images, but the samples have the shape \(64,\)"):
        arranged(nn.Linear(64, 2), ComputeSettings(channels_last=True), SampleSpec(shape=(64,), outputs=2))


def test_channels_last_trains_resumes_and_exports_the_same_model(tmp_path: Path) -> None:
    def trained(name: str, steps: int, *, last: bool = True) -> Outcome:
        sections = {"schedule": CONSTANT, "compute": {"channels_last": last}, "loop": {"max_steps": steps}}
        return run_alone(small_settings(**sections), tmp_path / name)

    trained("plain", 10, last=False)
    whole = trained("whole", 10)
    assert_close(tmp_path / "plain", tmp_path / "whole")
    trained("parted", 4)
    assert trained("parted", 10) == whole


@pytest.mark.extended
def test_compiled_steps_train_the_same_weights_and_resume_bit_for_bit(tmp_path: Path) -> None:
    """The last step of the epoch, number 21, has a short batch, which is compiled too."""
    if preflight.find_compiler() is None:
        pytest.skip("no C++ compiler on PATH")

    def trained(name: str, steps: int, mode: str = "default") -> str:
        sections = {"model": {"name": "mlp"}, "schedule": CONSTANT, "compute": {"compile": mode}}
        return train(tmp_path / name, 2, loop={"max_steps": steps}, **sections)

    # Costs over 20 CPU seconds: both ranks of each run compile the steps, the short one and the evaluation.
    trained("plain", 24, "off")
    whole = trained("whole", 24)
    assert list((tmp_path / "whole" / KERNELS).glob("*/*.so")), "no kernel was generated"
    assert_close(tmp_path / "plain", tmp_path / "whole")
    trained("parted", 22)
    assert trained("parted", 24) == whole
    losses = [[one.loss for one in select(read_all(tmp_path / name), Evaluated)] for name in ("plain", "whole")]
    torch.testing.assert_close(torch.tensor(losses[0]), torch.tensor(losses[1]), rtol=1e-2, atol=1e-3)


def test_a_machine_without_a_compiler_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    settings = small_settings(compute={"compile": "default"}, run={"directory": str(tmp_path)})
    with pytest.raises(PreflightError, match=r"needs a C\+\+ compiler, and there is no `no-such-compiler` on PATH"):
        preflight.check(settings, Machine(cpus=2, gpus=0))


MODES = ("full", "selective")
TOKENS = SampleSpec(shape=(64,), outputs=32, vocabulary=32, is_sequence=True)


def kept_bytes(module: nn.Module, inputs: Tensor) -> int:
    """Bytes that a forward pass leaves allocated, for the backward pass and its outputs."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        outputs = module(inputs)
    del outputs
    return sum(event.self_cpu_memory_usage for event in recorded.key_averages())


def with_mode(module: nn.Module, mode: Literal["full", "selective"]) -> nn.Module:
    """A copy of a model whose blocks are computed again."""
    recomputed = copy.deepcopy(module)
    recompute_blocks(recomputed, mode, model="transformer")
    return recomputed


def test_a_transformer_keeps_a_fraction_of_its_activations_and_more_if_selective() -> None:
    plain = transformer(TOKENS, TransformerOptions(layers=8, dropout=0.0))
    full, selective = with_mode(plain, "full"), with_mode(plain, "selective")
    tokens = torch.randint(32, (4, 64))
    kept = {name: kept_bytes(module, tokens) for name, module in (("off", plain), ("full", full), ("some", selective))}
    assert kept["full"] < 0.3 * kept["off"], kept
    assert 1.5 * kept["full"] < kept["some"] < 0.8 * kept["off"], kept
    for module in (full, selective):
        assert list(module.state_dict()) == list(plain.state_dict())
        torch.testing.assert_close(module(tokens), plain(tokens), rtol=0, atol=0)


class Centred(nn.Module):
    """Keeps a moving mean of its own, which its outputs depend on, and counts its batches."""

    mean: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden: Tensor = self.inner(inputs) - self.mean
        with torch.no_grad():
            self.mean.mul_(0.5).add_(hidden.mean(dim=0))
            self.count += 1
        return torch.tanh(hidden) * (1 + self.mean)


@pytest.mark.parametrize("mode", ["full", "selective"])
def test_a_block_with_statistics_of_its_own_is_computed_again_from_those_it_started_with(
    mode: Literal["full", "selective"],
) -> None:
    plain = nn.Sequential(nn.Sequential(Centred(), Centred()), nn.Linear(4, 2))
    again = with_mode(plain, mode)
    for seed in range(3):
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(seed))
        for module in (plain, again):
            module.zero_grad()
            module(inputs).square().sum().backward()
        for (name, one), other in zip(plain.named_parameters(), again.parameters(), strict=True):
            torch.testing.assert_close(other.grad, one.grad, rtol=0, atol=0, msg=name)
        assert all(map(torch.equal, plain.buffers(), again.buffers()))


def flops(module: nn.Module, tokens: Tensor) -> int:
    """Floating-point operations of the matrix products and of the attention of a step."""
    with FlopCounterMode(display=False) as counter:
        module(tokens).sum().backward()
    return int(counter.get_total_flops())


def test_selective_computes_no_matrix_product_or_attention_again() -> None:
    plain = transformer(TOKENS, TransformerOptions(layers=2, dropout=0.0))
    tokens = torch.randint(32, (4, 64))
    off, full, selective = (
        flops(one, tokens) for one in (plain, with_mode(plain, "full"), with_mode(plain, "selective"))
    )
    assert off == selective < full


def test_dropout_and_batch_norm_end_in_the_same_bits(tmp_path: Path) -> None:
    """The small CNN has batch norm in its blocks; the transformer has dropout in them."""
    model = {"name": "transformer", "options": {"width": 32, "layers": 2, "heads": 2, "dropout": 0.2}}
    for name, sections in (("cnn", {}), ("language", {**LANGUAGE, "model": model})):
        recipe = {**sections, "loop": {"max_steps": 6, "global_batch": 16}}
        plain = run_alone(small_settings(**recipe), tmp_path / name)
        for mode in MODES:
            settings = small_settings(**recipe, compute={"activation_checkpointing": mode})
            assert run_alone(settings, tmp_path / f"{name}-{mode}").weights_sha256 == plain.weights_sha256, mode


@pytest.mark.extended
@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_each_strategy_ends_in_the_same_bits(tmp_path: Path, strategy: str) -> None:
    recipe: dict[str, dict[str, Any]] = {"strategy": {"name": strategy}, "loop": {"max_steps": 6, "accumulation": 2}}
    modes = ("off", *MODES)
    hashes = {train(tmp_path / mode, 2, **recipe, compute={"activation_checkpointing": mode}) for mode in modes}
    assert len(hashes) == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["resnet18", "simple_cnn"])
def test_convolutional_blocks_have_the_same_gradients(name: str, mode: Literal["full", "selective"]) -> None:
    """Their activations are changed in place, which must not reach a result that is kept."""
    spec = SampleSpec(shape=(3, 32, 32), outputs=4)
    torch.manual_seed(0)
    plain = build_model(ModelSettings(name=name), spec)
    recomputed = with_mode(plain, mode)
    images = torch.randn(4, 3, 32, 32)
    gradients = []
    for module in (plain, recomputed):
        torch.manual_seed(1)
        module(images).square().sum().backward()
        gradients.append([parameter.grad for parameter in module.parameters()])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=0)
    torch.testing.assert_close(dict(recomputed.named_buffers()), dict(plain.named_buffers()), rtol=0, atol=0)


def test_settings_of_an_earlier_release_keep_their_meaning_and_useless_ones_are_refused() -> None:
    for switch, mode in ((True, "full"), (False, "off")):
        assert ComputeSettings.model_validate({"activation_checkpointing": switch}).activation_checkpointing == mode
    with pytest.raises(ValidationError, match="activation_checkpointing=selective has no use with compile=default"):
        ComputeSettings(activation_checkpointing="selective", compile="default")
    with pytest.raises(SettingsError, match=r"model\.name=mlp has no blocks"):
        recompute_blocks(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "full", model="mlp")
