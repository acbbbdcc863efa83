"""FSDP2 and HSDP: the weights of one process, a part of the memory, and checkpoints that any strategy continues."""

from __future__ import annotations

import os
import random
import signal
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.utils import prune
from torch.optim import AdamW

from observability.runlog import Evaluated, Restored, read_all, select
from tests.training.config.refused import assert_refused
from tests.training.launch.ranks import on_ranks
from tests.training.runs import LANGUAGE, exported, in_group, losses_of, small_settings, train
from training.checkpoint.storage import LocalStorage
from training.checkpoint.store import local_store
from training.config.schema import StrategySettings
from training.data.types import SampleSpec
from training.errors import SettingsError
from training.launch.task import RankPlace, RankTask
from training.models.options import ResNetOptions, SimpleCnnOptions, TransformerOptions
from training.models.resnet import resnet50
from training.models.simple_cnn import simple_cnn
from training.models.transformer import Block, transformer
from training.strategies.fully_sharded import FullySharded
from training.strategies.units import units_of
from training.worker import run_rank

CPU = torch.device("cpu")
STEPS = 20

MLP: dict[str, Any] = {"model": {"name": "mlp"}, "loop": {"max_steps": STEPS}, "schedule": {"name": "constant"}}
CNN: dict[str, Any] = {"loop": {"max_steps": STEPS}, "schedule": {"name": "constant"}}
FSDP2: dict[str, Any] = {"name": "fsdp2"}
HSDP: dict[str, Any] = {"name": "hsdp", "replicas": 2}


def assert_close(first: Path, second: Path) -> None:
    """Check that two runs made the same steps, but for the order in which sums are rounded."""
    assert losses_of(second) == pytest.approx(losses_of(first), rel=1e-4, abs=1e-5)
    other = exported(second)
    for name, value in exported(first).items():
        torch.testing.assert_close(value, other[name], rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize(
    ("recipe", "ranks", "strategy"), [(MLP, 2, FSDP2), (LANGUAGE, 4, HSDP)], ids=["mlp-fsdp2", "transformer-hsdp-2x2"]
)
def test_twenty_steps_are_those_of_one_process(
    tmp_path: Path, recipe: dict[str, Any], ranks: int, strategy: dict[str, Any]
) -> None:
    train(tmp_path / "one", 1, **recipe)
    train(tmp_path / "sharded", ranks, **recipe, strategy=strategy)
    assert len(losses_of(tmp_path / "sharded")) == STEPS
    assert_close(tmp_path / "one", tmp_path / "sharded")
    one, sharded = ([item.loss for item in select(read_all(tmp_path / name), Evaluated)] for name in ("one", "sharded"))
    torch.testing.assert_close(torch.tensor(sharded), torch.tensor(one), rtol=1e-4, atol=1e-5)


def test_batch_norm_accumulation_and_the_average_of_the_weights_are_those_of_ddp(tmp_path: Path) -> None:
    recipe = {**CNN, "loop": {"max_steps": 8, "accumulation": 2}, "ema": {"decay": 0.9}}
    train(tmp_path / "ddp", 2, **recipe)
    train(tmp_path / "sharded", 2, **recipe, strategy=FSDP2)
    assert_close(tmp_path / "ddp", tmp_path / "sharded")


@pytest.mark.extended
def test_weights_that_are_gathered_in_bf16_train_like_autocast_and_are_kept_in_float32(tmp_path: Path) -> None:
    """bf16 has 8 bits of mantissa: a relative rounding error of 2**-8 in each operation."""
    recipe = {**LANGUAGE, "precision": {"mode": "bf16"}}
    train(tmp_path / "autocast", 2, **recipe)
    train(tmp_path / "sharded", 2, **recipe, strategy={**FSDP2, "parameters": "bf16"})
    autocast, sharded = losses_of(tmp_path / "autocast"), losses_of(tmp_path / "sharded")
    assert sharded == pytest.approx(autocast, rel=2e-2)
    assert sharded != autocast, "nothing was computed in bf16"
    assert {value.dtype for value in exported(tmp_path / "sharded").values()} == {torch.float32}


@pytest.mark.extended
def test_a_run_that_resumes_ends_in_the_same_weights(tmp_path: Path) -> None:
    recipe = {**CNN, "loop": {"max_steps": 24}, "ema": {"decay": 0.9}, "strategy": FSDP2}
    whole = train(tmp_path / "whole", 2, **recipe)
    train(tmp_path / "parted", 2, **{**recipe, "loop": {"max_steps": 7}})
    assert train(tmp_path / "parted", 2, **recipe) == whole
    assert select(read_all(tmp_path / "parted"), Restored)[0].step == 7


@pytest.mark.extended
def test_a_run_goes_on_under_other_strategies_and_numbers_of_ranks(tmp_path: Path) -> None:
    run = tmp_path / "run"
    ddp = {"name": "ddp"}
    for steps, ranks, strategy in ((4, 2, ddp), (8, 4, FSDP2), (12, 2, ddp), (16, 4, HSDP), (STEPS, 1, ddp)):
        train(run, ranks, **{**MLP, "loop": {"max_steps": steps}}, strategy=strategy)
    train(tmp_path / "one", 1, **MLP)
    assert [one.step for one in select(read_all(run), Restored)] == [4, 8, 12, 16]
    assert_close(tmp_path / "one", run)


def _killed_rank(place: RankPlace, *, folder: str, sections: dict[str, dict[str, Any]]) -> str:
    """Rank 1 is killed when it has written the weights of step 10, and not yet its part of the optimizer's state."""
    writing = LocalStorage.writing

    def killed(storage: LocalStorage, at: str, name: str) -> AbstractContextManager[Path]:
        if (place.rank, at, name) == (1, "step-00000010", "optimizer-rank-00001.safetensors"):
            os.kill(os.getpid(), signal.SIGKILL)
        return writing(storage, at, name)

    LocalStorage.writing = killed  # type: ignore[assignment, method-assign]
    scale = {"launcher": "torchrun", "workers": place.world}
    task = RankTask(settings=small_settings(**sections, scale=scale), run_directory=Path(folder), attempt=0)
    return run_rank(task, place).weights_sha256


@pytest.mark.extended
def test_a_run_whose_rank_is_killed_while_it_writes_resumes_from_the_checkpoint_before(tmp_path: Path) -> None:
    recipe = {**CNN, "loop": {"max_steps": 12}, "strategy": FSDP2}
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    parted.mkdir()
    with pytest.raises(RuntimeError, match="rank 1 ended without a result, with status -9"):
        on_ranks(2, _killed_rank, folder=str(parted), sections=recipe)
    store = local_store(parted / "checkpoints")
    assert (store.folder_steps(), store.steps()) == ([5, 10], [5])
    assert store.path(10).joinpath("model-rank-00001.safetensors").exists()
    assert train(parted, 2, **recipe) == train(whole, 2, **recipe)
    assert [one.step for one in select(read_all(parted), Restored)] == [5]
    assert store.verify(10) == []


def _bytes_of_rank(place: RankPlace, *, replicas: int) -> dict[str, int]:
    settings = StrategySettings(name="hsdp", replicas=replicas) if replicas > 1 else StrategySettings(name="fsdp2")
    with in_group(place):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Sequential(nn.Linear(64, 256), nn.ReLU()), nn.Linear(256, 64))
        strategy = FullySharded(module, lambda it: AdamW(it.parameters()), settings=settings, device=CPU)
        strategy.model(torch.randn(4, 64)).square().sum().backward()
        strategy.optimizer.step()
        parameters = list(strategy.module.parameters())
        moments = [value for state in strategy.optimizer.state.values() for value in state.values() if value.dim()]
        return {
            "weights": _local_bytes(parameters),
            "gradients": _local_bytes([p.grad for p in parameters if p.grad is not None]),
            "optimizer": _local_bytes(moments),
        }


def _local_bytes(tensors: list[Any]) -> int:
    assert all(isinstance(one, DTensor) for one in tensors)
    return sum(one.to_local().nbytes for one in tensors)


@pytest.mark.parametrize(("ranks", "replicas"), [(2, 1), (4, 2)])
def test_the_memory_of_a_rank_is_that_of_zero_stage_3(ranks: int, replicas: int) -> None:
    """Of P parameters in float32 with Adam: 4P/N, 4P/N and 8P/N bytes for N shards (arXiv:1910.02054, table 1, without fp16)."""
    parameters, shards = 64 * 256 + 256 + 256 * 64 + 64, ranks // replicas
    for found in on_ranks(ranks, _bytes_of_rank, replicas=replicas):
        assert found == {
            "weights": 4 * parameters // shards,
            "gradients": 4 * parameters // shards,
            "optimizer": 8 * parameters // shards,
        }


def _clipped(place: RankPlace) -> tuple[float, float]:
    with in_group(place):
        torch.manual_seed(0)
        module = nn.Linear(6, 3)
        strategy = FullySharded(
            module, lambda it: AdamW(it.parameters()), settings=StrategySettings(name="fsdp2"), device=CPU
        )
        strategy.model(torch.ones(2, 6)).square().sum().backward()
        norm = strategy.gradient_norm()
        strategy.clip_gradients(0.5, norm)
        return float(norm), float(strategy.gradient_norm())


def test_gradients_are_measured_and_clipped_as_a_whole() -> None:
    torch.manual_seed(0)
    module = nn.Linear(6, 3)
    module(torch.ones(2, 6)).square().sum().backward()
    expected = float(nn.utils.get_total_norm([p.grad for p in module.parameters() if p.grad is not None]))
    for norm, clipped in on_ranks(2, _clipped):
        assert norm == pytest.approx(expected, rel=1e-5)
        assert clipped == pytest.approx(0.5, rel=1e-4)


class Layer(nn.Module):
    """A block."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 64)

    def forward(self, inputs: Tensor) -> Tensor:
        """Of shape (n, 64), like the inputs."""
        return inputs + torch.tanh(self.inner(inputs))


class Blocks(nn.Module):
    """Blocks that share a weight, are used more than once or by chance, lend a weight to what is outside, or are differentiated."""

    def __init__(self, spec: SampleSpec, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.blocks = nn.ModuleList([Layer(), Layer()])
        self.head = nn.Linear(64, spec.outputs)
        first, second = self.blocks
        assert isinstance(first, Layer)
        assert isinstance(second, Layer)
        if kind == "tied":
            second.inner.weight = first.inner.weight
        if kind == "looped":
            self.blocks = nn.ModuleList([first, second, first, first])
        if kind == "pairs":
            self.blocks = nn.ModuleList([nn.ModuleList([first, second])])
        if kind == "normed":
            nn.utils.weight_norm(first.inner)
            prune.random_unstructured(self.head, "weight", 0.5)  # type: ignore[no-untyped-call]
        if kind == "mixed":
            self.head.weight.data = self.head.weight.double()
        if kind == "scalar":
            first.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits."""
        features = inputs.flatten(1)
        for block in self._chosen():
            features = block(features)
        if self.kind == "foreign" and self.training:
            features = features @ self.get_parameter("blocks.1.inner.weight")
        if self.kind == "force":
            with torch.enable_grad():
                point = features.detach().requires_grad_()
                (slope,) = torch.autograd.grad(self.blocks[0](point).square().sum(), point, create_graph=True)
            features = features + slope
        outputs: Tensor = self.head(features)
        return outputs

    def _chosen(self) -> list[nn.Module]:
        """All blocks, also those in a list of their own; those that branch use one by chance in training."""
        if self.kind != "branching" or not self.training:
            return [
                block for layer in self.blocks for block in (layer if isinstance(layer, nn.ModuleList) else [layer])
            ]
        return [random.choice(list(self.blocks))]


def own(spec: SampleSpec, kind: str) -> nn.Module:
    """The factory that the settings name."""
    if kind == "sequence":
        return nn.Sequential(nn.Flatten(), Layer(), Layer(), nn.Linear(64, spec.outputs))
    return Blocks(spec, kind)


def recipe_of(kind: str) -> dict[str, Any]:
    return {
        "model": {"name": f"{__name__}:own", "options": {"kind": kind}},
        "loop": {"max_steps": 6},
        "schedule": {"name": "constant"},
    }


@pytest.mark.parametrize("kind", ["tied", "looped", "sequence", "normed", "pairs"])
def test_blocks_that_share_weights_are_used_more_than_once_or_compute_weights_train_as_in_one_process(
    tmp_path: Path, kind: str
) -> None:
    train(tmp_path / "one", 1, **recipe_of(kind))
    checkpointing = {"activation_checkpointing": "full"}
    train(tmp_path / "sharded", 2, **recipe_of(kind), strategy=FSDP2, compute=checkpointing)
    assert_close(tmp_path / "one", tmp_path / "sharded")
    assert exported(tmp_path / "sharded").keys() == exported(tmp_path / "one").keys()


@pytest.mark.parametrize(
    ("kind", "strategy", "said"),
    [
        ("foreign", "fsdp2", r"uses blocks\.1\.inner\.weight outside of the block that has it"),
        ("force", "fsdp2", r"computes gradients in forward"),
        (
            "mixed",
            "fsdp2",
            r"head\.bias of .* is of torch\.float32, and head\.weight, which is gathered with it, of torch\.float64",
        ),
        ("scalar", "fsdp2", r"blocks\.0\.scale of .* has no dimension"),
        ("scalar", "zero1", r"blocks\.0\.scale of .* has no dimension"),
    ],
)
def test_weights_that_cannot_be_divided_are_refused_by_name(
    tmp_path: Path, kind: str, strategy: str, said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        train(tmp_path, 2, **recipe_of(kind), strategy={"name": strategy})


def test_ranks_that_use_different_blocks_of_one_size_are_refused(tmp_path: Path) -> None:
    """No collective of theirs fails: each rank would compute with a mixture of both blocks."""
    with pytest.raises(SettingsError, match=r"in steps \d+ to \d+ the ranks used different blocks"):
        train(tmp_path, 2, **recipe_of("branching"), strategy=FSDP2)
    assert not local_store(tmp_path / "checkpoints").steps()


def test_units_are_the_blocks_of_a_model() -> None:
    images, tokens = SampleSpec(shape=(3, 32, 32), outputs=10), SampleSpec(shape=(16,), outputs=64, vocabulary=64)
    assert len(units_of(resnet50(images, ResNetOptions()))) == 3 + 4 + 6 + 3
    blocks = units_of(transformer(tokens, TransformerOptions(layers=3)))
    assert [type(one) for one in blocks] == [Block] * 3
    assert len(units_of(simple_cnn(images, SimpleCnnOptions()))) == 3
    assert units_of(nn.Linear(2, 2)) == ()
    layers = [nn.Flatten(), Layer(), Layer(), nn.Linear(64, 10)]
    nested = nn.Sequential(nn.Flatten(), nn.Sequential(*layers), nn.Linear(10, 2))
    assert units_of(nested) == units_of(nn.Sequential(*layers)) == (layers[1], layers[2])
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    assert units_of(nn.Sequential(normed, nn.Linear(2, 2))) == (normed,)
    model = Blocks(SampleSpec(shape=(64,), outputs=2), "pairs")
    assert [type(one) for one in units_of(model)] == [Layer] * 2
    model.first = layers[1] = model.get_submodule("blocks.0.0")
    assert len(units_of(model)) == len(units_of(nn.ModuleDict({"inner": model}))) * 2 == 2


def test_a_combination_that_cannot_work_is_refused() -> None:
    hsdp = "strategy.name=hsdp strategy.replicas"
    cases = {
        "strategy.name=fsdp2 strategy.replicas=2": "replicas=2 is a setting of name=hsdp",
        "strategy.name=hsdp": "name=hsdp needs replicas=2 or more",
        "strategy.offload=true": "offload: settings of name=fsdp2 and hsdp, got name=ddp",
        f"{hsdp}=4 scale.workers=6 loop.global_batch=60": "=4 must divide scale.workers=6 into groups … nearest: 3",
        f"{hsdp}=2 scale.workers=2": "use strategy.name=fsdp2",
        "strategy.name=fsdp2 strategy.parameters=bf16": "needs precision.mode=bf16 or fp8, got fp32",
        "strategy.name=fsdp2 strategy.offload=true": "needs scale.gpu=true",
        "strategy.name=fsdp2 compute.compile=default": "needs strategy.name=ddp, got fsdp2",
        "strategy.name=fsdp2 precision.mode=fp16 scale.gpu=true": "no loss scaling",
    }
    assert_refused(cases)
