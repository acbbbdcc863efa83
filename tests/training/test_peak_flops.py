"""The peak of a GPU by its name and the run's precision."""

from __future__ import annotations

import pytest
import torch

from infra.spec.catalog import load_catalog
from training.config.schema import PrecisionSettings
from training.peak_flops import PEAKS, Format, device_peak_flops, number_format, peak_flops


def test_the_name_that_the_driver_reports_gives_the_peak() -> None:
    rates: list[tuple[str, Format, float]] = [
        ("Tesla T4", "fp16", 65),
        ("Tesla T4", "tf32", 8.1),
        ("NVIDIA A10G", "bf16", 70),
        ("NVIDIA L4", "bf16", 121),
        ("NVIDIA L40S", "bf16", 362),
        ("NVIDIA A100-SXM4-40GB", "bf16", 312),
        ("NVIDIA A100 80GB PCIe", "fp32", 19.5),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.5),
        ("NVIDIA H100 PCIe", "bf16", 756.5),
        ("NVIDIA H200", "tf32", 494.5),
        ("NVIDIA B200", "bf16", 2250),
        ("NVIDIA L4", "fp8", 242.5),
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
