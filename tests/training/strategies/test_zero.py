"""ZeRO through DeepSpeed: the weights of one process, the memory of the paper, and checkpoints that any strategy continues."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from observability.runlog import Restored, read_all, select
from tests.engines.report_table import ran, skipped
from tests.training.launch.ranks import on_ranks
from tests.training.runs import LANGUAGE, exported, in_group, losses_of, small_settings, train
from tests.training.strategies.test_fully_sharded import MLP, assert_close
from tests.training.strategies.test_strategies import UNUSED
from training.checkpoint.stateful import StateRegistry
from training.config.deepspeed import DEFAULTS
from training.errors import SettingsError
from training.launch.task import RankPlace
from training.precision import Precision
from training.strategies.single_process import SingleProcess
from training.strategies.zero import Zero

Array = npt.NDArray[Any]

CPU = torch.device("cpu")
STAGES = ("zero1", "zero2", "zero3")
ROWS = 12
SPLIT: dict[str, Any] = {**MLP, "loop": {"max_steps": 24, "global_batch": 96, "accumulation": 3}}
"""Three micro-batches a step, and the short batch at the end of an epoch (1,293 samples)."""


@pytest.fixture(scope="module", autouse=True)
def deepspeed() -> None:
    if importlib.util.find_spec("deepspeed") is None:
        skipped("DeepSpeed", "not installed", "make env WITH=deepspeed")
    ran("DeepSpeed")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The run `SPLIT` of two ranks under stage 3, and the hash of its weights."""
    folder = tmp_path_factory.mktemp("zero3") / "run"
    return folder, train(folder, 2, **SPLIT, strategy={"name": "zero3"})


def test_the_steps_are_those_of_one_process(tmp_path: Path, whole: tuple[Path, str]) -> None:
    train(tmp_path, 1, **SPLIT)
    assert_close(tmp_path, whole[0])
    # The gradients of two ranks are added in another order than those of one process: an error in the last places only.
    other = exported(whole[0])
    for name, value in exported(tmp_path).items():
        torch.testing.assert_close(other[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.extended
def test_a_run_that_resumes_ends_in_the_same_weights(tmp_path: Path, whole: tuple[Path, str]) -> None:
    recipe = {**SPLIT, "strategy": {"name": "zero3"}}
    train(tmp_path, 2, **{**recipe, "loop": {**SPLIT["loop"], "max_steps": 7}})
    assert train(tmp_path, 2, **recipe) == whole[1]
    assert select(read_all(tmp_path), Restored)[0].step == 7


@pytest.mark.extended
def test_what_a_file_leaves_out_is_what_the_library_takes() -> None:
    """The defaults of every optimizer and scheduler that a file may name."""
    adam = importlib.import_module("deepspeed.ops.adam").FusedAdam
    schedules = importlib.import_module("deepspeed.runtime.lr_schedules")
    made = {
        "adam": adam,
        "adamw": adam,
        "sgd": torch.optim.SGD,
        "warmuplr": schedules.WarmupLR,
        "warmupcosinelr": schedules.WarmupCosineLR,
    }
    for name, kind in made.items():
        parameters = inspect.signature(kind.__init__).parameters
        found = {key: parameters[key].default for key in DEFAULTS[name]}
        assert {key: [*one] if isinstance(one, tuple) else one for key, one in found.items()} == DEFAULTS[name], name
    assert inspect.signature(schedules.WarmupLR.__init__).parameters["warmup_max_lr"].default is None


@pytest.mark.extended
def test_weights_that_the_first_step_does_not_use_are_refused(tmp_path: Path) -> None:
    """Its stages 1 and 2 would take their gradients for zeros and decay them."""
    for stage in ("zero1", "zero2", "zero3"):
        with pytest.raises(SettingsError, match=rf"strategy.name={stage}: the first step does not use branch\.weight"):
            train(tmp_path / stage, 2, **UNUSED, strategy={"name": stage})


def network() -> nn.Module:
    """Odd sizes, which no number of ranks divides."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


def adamw(module: nn.Module) -> Optimizer:
    groups = [[p for p in module.parameters() if p.ndim > 1], [p for p in module.parameters() if p.ndim == 1]]
    return AdamW([{"params": group} for group in groups], lr=1e-2, fused=True)


def zero(stage: str, module: nn.Module, *, offload: bool = False, parameters: str = "fp32") -> Zero:
    """The strategy of this rank; weights of any size are divided, of which stage 3 keeps small ones whole otherwise."""
    file = {"zero_optimization": {"stage3_param_persistence_threshold": 0}} if stage == "zero3" else None
    settings = small_settings(
        scale={"launcher": "torchrun", "workers": dist.get_world_size()},
        loop={"global_batch": ROWS},
        strategy={"name": stage, "deepspeed": file, "parameters": parameters},
        precision={"mode": "bf16" if parameters == "bf16" else "fp32"},
    )
    strategy = settings.strategy.model_copy(update={"offload": offload})  # which the settings of a CPU run refuse
    return Zero(module, adamw, settings=settings.model_copy(update={"strategy": strategy}), device=CPU)


def inputs_of(step: int) -> Tensor:
    return torch.randn(ROWS, 7, generator=torch.Generator().manual_seed(step))


def step(strategy: Zero | SingleProcess, inputs: Tensor, *, clip: float | None = None) -> tuple[float, bool]:
    """A step of batch norm in evaluation mode, whose result does not depend on the division of the batch."""
    strategy.model.eval()
    strategy.optimizer.zero_grad()
    loss = strategy.model(inputs).float().square().sum() * (strategy.averaged_ranks / ROWS)
    strategy.backward(loss)
    return strategy.update(Precision(small_settings().precision, CPU), clip)


def arrays(named: dict[str, Tensor]) -> dict[str, Array]:
    """Copies that another process can receive."""
    return {name: value.detach().numpy().copy() for name, value in named.items()}


def saved_by(strategy: Zero | SingleProcess) -> dict[str, Array]:
    """What rank 0 would save, by file and name."""
    tensors = StateRegistry(**strategy.states()).collect().tensors
    return arrays({f"{file}:{name}": value for file, found in tensors.items() for name, value in found.items()})


def _continued(place: RankPlace, *, cases: tuple[tuple[str, bool], ...]) -> list[dict[str, Any]]:
    with in_group(place):
        return [_continue(place, stage, offload=offload) for stage, offload in cases]


def _continue(place: RankPlace, stage: str, *, offload: bool) -> dict[str, Any]:
    """Continue under ZeRO what one process began; what rank 0 would save, the norms, and what comes of a gradient that is NaN."""
    alone, other = SingleProcess(network(), adamw), zero(stage, network(), offload=offload)
    for index in range(2):
        step(alone, inputs_of(index))
    for name, state in alone.states().items():
        other.states()[name].load_state_dict(copy.deepcopy(dict(state.state_dict())))
    found: dict[str, Any] = {"loaded": (saved_by(alone), saved_by(other)), "norms": []}
    for index in range(2, 5):
        own = inputs_of(index)[place.rank :: place.world]
        found["norms"].append((step(alone, inputs_of(index), clip=0.5)[0], step(other, own, clip=0.5)[0]))
    found["bad"] = step(other, torch.full((ROWS // place.world, 7), math.nan))
    found["trained"] = saved_by(alone), saved_by(other)
    whole = other.whole_module()
    found["exported"] = arrays(whole.state_dict()) if place.rank == 0 else {}
    return found


def assert_same_state(found: dict[str, Any]) -> None:
    """Check what `_continue` has found."""
    saved, restored = found["loaded"]
    assert saved.keys() == restored.keys()
    assert all(np.array_equal(value, restored[name]) for name, value in saved.items())
    alone, divided = found["trained"]
    assert alone.keys() == divided.keys()
    for name, value in alone.items():
        np.testing.assert_allclose(divided[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    assert all(theirs == pytest.approx(ours, rel=1e-5) for ours, theirs in found["norms"])
    assert found["bad"] == (math.inf, False)
    assert all(np.array_equal(value, divided[f"model.safetensors:{name}"]) for name, value in found["exported"].items())


@pytest.mark.extended
def test_the_state_of_one_process_is_divided_trained_and_made_whole_again() -> None:
    for found in on_ranks(2, _continued, cases=(("zero1", False), ("zero2", True), ("zero3", True)))[0]:
        assert_same_state(found)


def _bytes_of_rank(place: RankPlace) -> dict[str, dict[str, int]]:
    with in_group(place):
        return {stage: _bytes(stage) for stage in STAGES}


def _bytes(stage: str) -> dict[str, int]:
    """Bytes between the backward pass and the update, which frees the gradients, and of the state after it."""
    module = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    strategy = zero(stage, module, parameters="bf16")
    outputs = strategy.model(torch.randn(4, 64))
    gradients = list[Tensor]()
    if stage == "zero1":
        with strategy.accumulating():  # it keeps whole gradients up to the reduction of the last micro-batch
            strategy.backward(outputs.float().square().sum())
        gradients = [p.grad for p in module.parameters() if p.grad is not None]
        outputs = strategy.model(torch.randn(4, 64))
    strategy.backward(outputs.float().square().sum())
    optimizer: Any = strategy.optimizer
    parts = optimizer.averaged_gradients
    gradients = gradients or [one for part in parts.values() for one in part]
    weights = [p.ds_tensor if stage == "zero3" else p for p in module.parameters()]  # type: ignore[attr-defined]
    strategy.update(Precision(small_settings().precision, CPU), None)
    masters = optimizer.fp32_partitioned_groups_flat if stage == "zero3" else optimizer.single_partition_of_fp32_groups
    moments = [value for state in optimizer.optimizer.state.values() for value in state.values() if value.dim()]
    return {
        "weights": sum(one.nbytes for one in weights),
        "gradients": sum(one.nbytes for one in gradients),
        "optimizer": sum(one.nbytes for one in (*masters, *moments)),
    }


@pytest.mark.extended
def test_the_memory_of_a_rank_is_that_of_the_paper() -> None:
    """Of P parameters in bf16 with Adam: 2P, 2P and 12P bytes, of which a stage divides its part by N (arXiv:1910.02054, figure 1)."""
    parameters, ranks = 64 * 256 + 256 + 256 * 64 + 64, 2
    whole, part = 2 * parameters, 2 * parameters // ranks
    for found in on_ranks(ranks, _bytes_of_rank):
        assert found == {
            "zero1": {"weights": whole, "gradients": whole, "optimizer": 12 * parameters // ranks},
            "zero2": {"weights": whole, "gradients": part, "optimizer": 12 * parameters // ranks},
            "zero3": {"weights": part, "gradients": part, "optimizer": 12 * parameters // ranks},
        }


@pytest.mark.extended
def test_training_in_bf16_is_like_autocast_and_keeps_weights_in_float32(tmp_path: Path) -> None:
    """bf16 has 8 bits of mantissa: a relative rounding error of 2**-8 in each operation. Also with blocks that are computed again."""
    recipe = {**LANGUAGE, "precision": {"mode": "bf16"}}
    train(tmp_path / "autocast", 2, **recipe)
    autocast, again = losses_of(tmp_path / "autocast"), {"activation_checkpointing": "full"}
    for stage, parameters in (("zero1", "bf16"), ("zero2", "fp32"), ("zero3", "bf16")):
        strategy = {"name": stage, "parameters": parameters}
        train(tmp_path / stage, 2, **recipe, strategy=strategy, compute=again if stage == "zero3" else {})
        own = losses_of(tmp_path / stage)
        assert own == pytest.approx(autocast, rel=2e-2)
        assert (own[0] == autocast[0]) == (parameters == "fp32"), "the first step of autocast in float32 is the same"
        assert {value.dtype for value in exported(tmp_path / stage).values()} == {torch.float32}
