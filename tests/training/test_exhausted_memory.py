"""Memory: the settings of torch's allocator, and the advice when memory runs out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from observability.runlog import Notice, read_all, select
from tests.training.config.refused import assert_refused
from tests.training.runs import ALONE, run_alone, small_settings
from training.allocator import configure_allocator
from training.config.schema import AllocatorSettings
from training.data.types import SampleSpec
from training.device import FAKE_GPUS
from training.errors import OutOfMemoryError
from training.launch.task import RankTask
from training.worker import run_rank

GPU: dict[str, Any] = {"gpu": True}
OURS = AllocatorSettings(expandable_segments=True, max_split_size_mb=512)
_MESSAGE = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB of which 1.2 GiB is free. "
    "If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True"
)


class Exhausting(nn.Module):
    """A linear model whose memory runs out: as on a GPU, or for real on the host, which has no 2**60 bytes."""

    def __init__(self, spec: SampleSpec, *, phase: str, on_host: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(spec.shape[-1] * spec.shape[-2], spec.outputs)
        self.phase = phase
        self.on_host = on_host

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of the samples, in the other phase."""
        if self.training == (self.phase == "training"):
            if self.on_host:
                torch.empty(2**60, dtype=torch.uint8)
            raise torch.OutOfMemoryError(_MESSAGE)
        logits: Tensor = self.linear(inputs.flatten(1))
        return logits


def exhausting(spec: SampleSpec, phase: str, *, on_host: bool = False) -> nn.Module:
    """The factory that the settings name."""
    return Exhausting(spec, phase=phase, on_host=on_host)


def failed(folder: Path, *, phase: str, on_host: bool = False, **sections: dict[str, Any]) -> OutOfMemoryError:
    """The error of a run whose memory runs out."""
    options = {"phase": phase, "on_host": on_host}
    model = {"name": f"{__name__}:exhausting", "options": options}
    with pytest.raises(OutOfMemoryError) as caught:
        run_alone(small_settings(model=model, **sections), folder)
    return caught.value


@pytest.mark.parametrize("on_host", [False, True])
def test_the_error_names_the_step_the_micro_batch_and_what_needs_less(tmp_path: Path, on_host: bool) -> None:  # noqa: FBT001
    error = failed(tmp_path, phase="training", on_host=on_host, loop={"global_batch": 96, "accumulation": 2})
    message = str(error.args[0])
    assert message.startswith(
        "step 1: out of memory with 48 samples at a time (loop.global_batch=96, scale.workers=1, "
    )
    assert ("DefaultCPUAllocator: " if on_host else "CUDA out of memory. Tried to allocate 2.00 GiB.") in message
    assert "PYTORCH_ALLOC_CONF" not in message
    assert error.remedy.startswith(
        "set loop.accumulation=3, which computes 32 samples at a time; batch norm aside, the gradient is the same; or "
    )
    assert "compute.activation_checkpointing" in error.remedy
    assert "precision.mode=bf16" in error.remedy
    assert "expandable_segments" not in error.remedy, "a CPU has none"
    record = json.loads((tmp_path / "failures" / "attempt-0-rank-0.json").read_text())
    assert (record["message"], record["remedy"], record["cause"]) == (message, error.remedy, "out_of_memory")


def test_the_advice_raises_logical_shards_where_they_are_used(tmp_path: Path) -> None:
    error = failed(tmp_path, phase="training", loop={"global_batch": 96, "logical_shards": 2})
    assert "48 samples at a time (loop.global_batch=96, scale.workers=1, loop.logical_shards=2)" in str(error.args[0])
    assert error.remedy.startswith(
        "set loop.logical_shards=4, which computes 24 samples at a time; batch norm and dropout"
    )
    assert "loop.accumulation" not in error.remedy


def test_advice_that_was_followed_is_not_repeated(tmp_path: Path) -> None:
    loop = {"global_batch": 8, "accumulation": 8}
    error = failed(tmp_path, phase="training", loop=loop, precision={"mode": "bf16"})
    assert "loop.accumulation" not in error.remedy
    assert "precision.mode" not in error.remedy


def test_an_evaluation_names_its_batch(tmp_path: Path) -> None:
    error = failed(tmp_path, phase="evaluation", loop={"evaluation_batch": 200})
    assert "evaluation: out of memory with 200 samples at a time (loop.evaluation_batch)" in str(error.args[0])
    assert "set loop.evaluation_batch=64" in error.remedy


def test_the_allocator_is_configured_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU that does not exist, as in the sandbox: the run is on the CPU."""
    monkeypatch.setenv(FAKE_GPUS, "0")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "")
    allocator = {"expandable_segments": True, "max_split_size_mb": 512}
    settings = small_settings(compute={"allocator": allocator}, scale=GPU, loop={"max_steps": 1})
    run_rank(RankTask(settings=settings, run_directory=tmp_path, attempt=0), ALONE)
    assert os.environ["PYTORCH_ALLOC_CONF"] == "expandable_segments:True,max_split_size_mb:512"
    assert not [one for one in select(read_all(tmp_path), Notice) if "compute.allocator" in one.message]


def test_a_variable_of_the_user_s_takes_precedence_with_a_warning_and_our_own_without() -> None:
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        environment = {name: "max_split_size_mb:64"}
        warning = configure_allocator(OURS, environment)
        assert environment == {name: "max_split_size_mb:64"}
        assert "compute.allocator (expandable_segments:True,max_split_size_mb:512) has no effect" in warning
        assert f"{name}=max_split_size_mb:64" in warning
    environment = dict[str, str]()
    assert [configure_allocator(OURS, environment) for _ in range(2)] == ["", ""]


def test_settings_that_cannot_act_are_refused() -> None:
    cases = {
        "compute.memory_fraction=0.5": "memory_fraction is about the memory of GPUs and needs scale.gpu=true",
        "compute.allocator.expandable_segments=true": "compute.allocator is about the memory of GPUs",
        "compute.memory_fraction=1.5 scale.gpu=true": "memory_fraction = 1.5: must be less than or equal to 1",
        "compute.allocator.expandable=true": "did you mean expandable_segments?",
        "compute.allocator.garbage_collection_threshold=0.8 scale.gpu=true": "needs memory_fraction",
    }
    assert_refused(cases)
