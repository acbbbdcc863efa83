"""fp8: which layers it converts, and that only their products change. A CPU rounds to 8-bit numbers, and multiplies in float32."""

from __future__ import annotations

import copy
import os
from functools import partial
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from observability.runlog import Notice, Restored, read_all, select
from tests.training.launch.ranks import on_ranks
from tests.training.runs import LANGUAGE, exported, losses_of, run_alone, small_settings
from training import preflight, run_model
from training.checkpoint.manifest import MODEL_FILE
from training.checkpoint.store import FOLDER, committed_steps
from training.config.schema import ModelSettings
from training.data.types import SampleSpec
from training.device import FAKE_GPUS
from training.errors import PreflightError, SettingsError
from training.float8 import convert_linears, float8_layers
from training.launch.task import RankPlace, RankTask
from training.models.options import TransformerOptions
from training.models.registry import build_model
from training.models.transformer import transformer
from training.recomputation import recompute_blocks
from training.worker import run_rank

CPU = torch.device("cpu")
TOKENS = SampleSpec(shape=(64,), outputs=32, vocabulary=32, is_sequence=True)
BAND = 5e-3
"""Largest relative difference of a step's loss from bf16's: e4m3 has 4 bits of significand, of which a sum of 32 products keeps more."""


def emulated(module: nn.Module) -> nn.Module:
    """A copy of a module whose layers are converted."""
    converted = copy.deepcopy(module)
    convert_linears(converted, CPU, model="transformer", emulate=True)
    return converted


def plain_transformer() -> nn.Module:
    """A small transformer with equal weights every time."""
    torch.manual_seed(0)
    return transformer(TOKENS, TransformerOptions(width=32, layers=2, heads=2, dropout=0.0))


def test_the_linear_layers_of_the_blocks_are_converted_and_not_the_head() -> None:
    plain = plain_transformer()
    converted = emulated(plain)
    blocks = {name for name, one in plain.named_modules() if isinstance(one, nn.Linear) and name.startswith("blocks.")}
    changed = {name for name, one in converted.named_modules() if type(one) is not type(plain.get_submodule(name))}
    assert len(blocks) == 8
    assert changed == blocks == float8_layers(plain)


def test_the_first_and_last_layer_those_of_other_widths_and_shared_ones_are_kept() -> None:
    sizes = [(16, 32), (32, 48), (48, 40), (40, 48), (48, 64), (64, 16)]
    assert float8_layers(nn.Sequential(*(nn.Linear(*size) for size in sizes))) == {"1", "4"}
    attention = nn.MultiheadAttention(32, 2)
    assert float8_layers(nn.Sequential(nn.Linear(32, 32), attention, nn.Linear(32, 32), nn.Linear(32, 32))) == {"2"}


def test_a_model_without_such_layers_is_refused() -> None:
    for name in ("resnet18", "simple_cnn"):
        module = build_model(ModelSettings(name=name), SampleSpec(shape=(3, 32, 32), outputs=16))
        with pytest.raises(SettingsError, match=rf"model\.name={name} has no linear layer between") as refusal:
            convert_linears(module, CPU, model=name, emulate=True)
        assert "precision.mode=bf16" in str(refusal.value)


def test_a_rank_that_cannot_compute_in_fp8_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAKE_GPUS, "fake-0")
    settings = small_settings(**LANGUAGE, precision={"mode": "fp8"}, scale={"gpu": True})
    with pytest.raises(SettingsError, match=r"precision\.mode=fp8 needs a GPU, and this rank computes on cpu"):
        run_alone(settings, tmp_path / "run")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 6))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A10G")
    with pytest.raises(SettingsError, match=r"compute capability 8\.9 or higher; NVIDIA A10G has 8\.6"):
        convert_linears(plain_transformer(), torch.device("cuda", 0), model="transformer")
    monkeypatch.setattr(preflight, "find_spec", lambda _: None)
    with pytest.raises(PreflightError, match="needs the package torchao"):
        emulated(plain_transformer())


def gradients(module: nn.Module, tokens: Tensor) -> dict[str, Tensor]:
    """Gradients of a step under the autocast of fp8."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = module(tokens)
    logits.float().square().mean().backward()
    return {name: one.grad for name, one in module.named_parameters() if one.grad is not None}


def test_gradients_are_float32_and_differ_from_bf16_by_the_rounding_of_8_bit_numbers() -> None:
    """15 tokens, no multiple of 16. e4m3 rounds by up to 2**-4 and e5m2 by up to 2**-3, so a product of both by up to 3 * 2**-4."""
    plain = plain_transformer()
    tokens = torch.randint(32, (3, 5))
    exact, rounded = gradients(plain, tokens), gradients(emulated(plain), tokens)
    assert {one.dtype for one in rounded.values()} == {torch.float32}
    for name, value in exact.items():
        error = float((rounded[name] - value).norm() / value.norm())
        assert 0 < error < 3 * 2**-4, name


def test_recomputed_blocks_have_the_same_gradients_and_selective_multiplies_nothing_again() -> None:
    converted = emulated(plain_transformer())
    tokens = torch.randint(32, (4, 16))
    modes: list[Literal["full", "selective"]] = ["full", "selective"]
    for mode in modes:
        recomputed, plain = copy.deepcopy(converted), copy.deepcopy(converted)
        recompute_blocks(recomputed, mode, model="transformer")
        with FlopCounterMode(display=False) as plain_count:
            expected = gradients(plain, tokens)
        with FlopCounterMode(display=False) as count:
            torch.testing.assert_close(gradients(recomputed, tokens), expected, rtol=0, atol=0)
        assert (count.get_total_flops() > plain_count.get_total_flops()) == (mode == "full")


def _train(place: RankPlace, *, folder: str, sections: dict[str, dict[str, Any]]) -> str:
    torch.set_num_threads(1)
    os.environ[FAKE_GPUS] = "fake-0"
    scale = {"gpu": True, "launcher": "torchrun" if place.world > 1 else "plain", "workers": place.world}
    settings = small_settings(**sections, scale=scale)
    with patch.object(run_model, "convert_linears", partial(convert_linears, emulate=True)):
        return run_rank(RankTask(settings=settings, run_directory=Path(folder), attempt=0), place).weights_sha256


def train(folder: Path, *, ranks: int = 1, **sections: dict[str, Any]) -> str:
    """Train, or go on, in processes of their own with emulated 8-bit numbers; returns the hash of the exported weights."""
    folder.mkdir(exist_ok=True)
    sections = {**LANGUAGE, "precision": {"mode": "fp8"}, **sections}
    return on_ranks(ranks, _train, folder=str(folder), sections=sections)[0]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run `bf16` and a run `fp8`, each of one process."""
    folder = tmp_path_factory.mktemp("runs")
    train(folder / "bf16", precision={"mode": "bf16"})
    train(folder / "fp8")
    return folder


def test_twenty_steps_stay_near_those_in_bf16(runs: Path) -> None:
    exact, rounded = losses_of(runs / "bf16"), losses_of(runs / "fp8")
    assert len(rounded) == 20
    assert rounded == pytest.approx(exact, rel=BAND)
    assert rounded != exact, "nothing was computed in fp8"
    assert rounded[-1] < rounded[0]
    [notice] = [one.message for one in select(read_all(runs / "fp8"), Notice) if "fp8" in one.message]
    assert notice == "precision.mode=fp8: 8 linear layers multiply in fp8, 1 in bf16"


def test_checkpoints_and_the_export_have_the_tensors_of_bf16(runs: Path) -> None:
    def shapes(file: Path) -> dict[str, tuple[torch.dtype, torch.Size]]:
        return {name: (one.dtype, one.shape) for name, one in load_file(file).items()}

    newest = max(committed_steps(runs / "fp8" / FOLDER))
    for name in ("model/model.safetensors", f"{FOLDER}/step-{newest:08d}/{MODEL_FILE}"):
        assert shapes(runs / "fp8" / name) == shapes(runs / "bf16" / name)
        assert {dtype for dtype, _ in shapes(runs / "fp8" / name).values()} == {torch.float32}


@pytest.mark.extended
def test_a_run_that_resumes_ends_in_the_same_weights(runs: Path, tmp_path: Path) -> None:
    train(tmp_path / "parted", loop={**LANGUAGE["loop"], "max_steps": 7})
    train(tmp_path / "parted")
    assert select(read_all(tmp_path / "parted"), Restored)[0].step == 7
    torch.testing.assert_close(exported(tmp_path / "parted"), exported(runs / "fp8"), rtol=0, atol=0)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("strategy", "compute"),
    [
        ({"name": "ddp"}, {"activation_checkpointing": "selective"}),
        ({"name": "fsdp2", "parameters": "bf16"}, {"activation_checkpointing": "full"}),
    ],
    ids=["ddp", "fsdp2"],
)
def test_two_ranks_of_each_strategy_stay_near_bf16_with_weights_in_float32(
    runs: Path, tmp_path: Path, strategy: dict[str, Any], compute: dict[str, Any]
) -> None:
    train(tmp_path / "two", ranks=2, strategy=strategy, compute=compute)
    assert losses_of(tmp_path / "two") == pytest.approx(losses_of(runs / "bf16"), rel=BAND)
    assert {one.dtype for one in exported(tmp_path / "two").values()} == {torch.float32}
