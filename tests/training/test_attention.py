"""The kernel of attention: the one that the settings name runs, or the run is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from observability.runlog import Notice, read_all, select
from tests.training.config.refused import assert_refused
from tests.training.runs import LANGUAGE, losses_of, run_alone, small_settings
from training.attention import attention_kernel, kernels_among
from training.data.types import SampleSpec
from training.errors import SettingsError


def notices(folder: Path) -> list[tuple[str, str]]:
    """Level and text of what a run says about attention."""
    return [(one.level, one.message) for one in select(read_all(folder), Notice) if "attention" in one.message]


def train(folder: Path, **sections: dict[str, Any]) -> list[float]:
    """The losses of a few steps of a small language model."""
    run_alone(small_settings(**{**LANGUAGE, "loop": {"max_steps": 3, "global_batch": 16}, **sections}), folder)
    return losses_of(folder)


def test_the_kernel_of_the_settings_runs_and_is_reported_once_and_recomputation_uses_it_too(tmp_path: Path) -> None:
    plain = train(tmp_path / "auto")
    assert notices(tmp_path / "auto") == []
    for kernel, recomputes in (("flash", False), ("math", False), ("math", True)):
        folder = tmp_path / f"{kernel}-{recomputes}"
        losses = train(folder, compute={"attention": kernel, "activation_checkpointing": recomputes})
        assert notices(folder) == [("info", f"step 1 computed attention with the kernel {kernel}")]
        assert losses == pytest.approx(plain, rel=1e-4), folder.name


def test_the_report_waits_for_another_profiler_to_end(tmp_path: Path) -> None:
    loop = {"max_steps": 5, "global_batch": 16}
    train(tmp_path, compute={"attention": "math"}, profile={"start_step": 2, "steps": 1}, loop=loop)
    [(level, message)] = notices(tmp_path)
    assert level == "info"
    assert re.fullmatch(r"step [345] computed attention with the kernel math", message), message
    assert list(tmp_path.rglob("rank0.json.gz")), "nothing was profiled"


def test_a_model_without_attention_is_reported(tmp_path: Path) -> None:
    run_alone(small_settings(compute={"attention": "math"}, loop={"max_steps": 1}), tmp_path)
    assert notices(tmp_path) == [
        ("warning", "compute.attention=math has no effect: step 1 has no scaled_dot_product_attention")
    ]


class Dropping(nn.Module):
    """Attention with dropout in it, which flash attention on CPUs does not have."""

    def __init__(self, spec: SampleSpec) -> None:
        super().__init__()
        self.linear = nn.Linear(spec.shape[-1], 16)
        self.head = nn.Linear(16, spec.outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Maps images, whose rows attend to each other, to logits."""
        rows = self.linear(inputs)
        logits: Tensor = self.head(scaled_dot_product_attention(rows, rows, rows, dropout_p=0.5).mean(dim=(1, 2)))
        return logits


def test_a_kernel_that_cannot_compute_the_model_is_refused_with_the_remedy(tmp_path: Path) -> None:
    settings = small_settings(model={"name": f"{__name__}:Dropping"}, compute={"attention": "flash"})
    with pytest.raises(SettingsError, match=r"compute\.attention=flash: that kernel cannot compute") as caught:
        run_alone(settings, tmp_path)
    assert "set compute.attention=auto or math" in caught.value.remedy


def test_torch_s_choice_is_restored_and_other_errors_pass() -> None:
    def failing() -> None:
        with attention_kernel("math"):
            assert not torch.backends.cuda.flash_sdp_enabled()  # type: ignore[no-untyped-call]
            raise RuntimeError("another")

    with pytest.raises(RuntimeError, match="another"):
        failing()
    assert torch.backends.cuda.flash_sdp_enabled()  # type: ignore[no-untyped-call]


def test_every_kernel_of_this_torch_has_a_name() -> None:
    """An upgrade that renames an operator fails here."""
    names = ["flash_attention", "flash_attention_for_cpu", "efficient_attention", "cudnn_attention", "attention_math"]
    operators = [f"_scaled_dot_product_{name}" for name in names]
    assert all(hasattr(torch.ops.aten, name) for name in operators)
    found = [kernels_among([f"aten::{name}", "aten::mm"]) for name in operators]
    assert found == [["flash"], ["flash"], ["efficient"], ["cudnn"], ["math"]]


def test_a_kernel_that_does_not_exist_here_is_refused_before_anything_starts() -> None:
    cases = {
        "compute.attention=efficient": "compute.attention=efficient needs scale.gpu=true; CPUs have flash and math",
        "compute.attention=flash scale.gpu=true": "needs precision.mode=bf16, fp16 or fp8 on GPUs, got fp32",
        "compute.attention=flashy": "must be one of auto, flash, efficient, math",
    }
    assert_refused(cases)
