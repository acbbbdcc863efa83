"""The FLOP/s that a GPU can reach: the dense figures of NVIDIA's data sheets, by number format.

Sources: NVIDIA's data sheets of T4 (951643), A10G (which AWS publishes), L4, L40S, A100, H100 (PCIe: an earlier edition) and H200; for B200
and B300 an eighth of the specifications of HGX B200 and B300. Figures that a sheet gives with sparsity alone are halved. MFU is the model's
FLOP/s as a share of this peak (PaLM, arXiv:2204.02311, appendix B).
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

import torch

from training.config.schema import PrecisionSettings

Format = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]


class PeakRates(NamedTuple):
    """Dense peak in TFLOP/s by format; None where the GPU's tensor cores do not have it."""

    fp32: float
    tf32: float | None
    fp16: float
    bf16: float | None
    fp8: float | None


PEAKS: dict[tuple[str, ...], PeakRates] = {
    ("T4",): PeakRates(fp32=8.1, tf32=None, fp16=65, bf16=None, fp8=None),
    ("A10G",): PeakRates(fp32=35, tf32=35, fp16=70, bf16=70, fp8=None),
    ("L4",): PeakRates(fp32=30.3, tf32=60, fp16=121, bf16=121, fp8=242.5),
    ("L40S",): PeakRates(fp32=91.6, tf32=183, fp16=362, bf16=362, fp8=733),
    ("A100",): PeakRates(fp32=19.5, tf32=156, fp16=312, bf16=312, fp8=None),
    ("H100", "PCIe"): PeakRates(fp32=51, tf32=378, fp16=756.5, bf16=756.5, fp8=1513),
    ("H100", "NVL"): PeakRates(fp32=60, tf32=417.5, fp16=835.5, bf16=835.5, fp8=1670.5),
    ("H100",): PeakRates(fp32=67, tf32=494.5, fp16=989.5, bf16=989.5, fp8=1979),
    ("H200", "NVL"): PeakRates(fp32=60, tf32=417.5, fp16=835.5, bf16=835.5, fp8=1670.5),
    ("H200",): PeakRates(fp32=67, tf32=494.5, fp16=989.5, bf16=989.5, fp8=1979),
    ("B200",): PeakRates(fp32=75, tf32=1125, fp16=2250, bf16=2250, fp8=4500),
    ("B300",): PeakRates(fp32=75, tf32=1125, fp16=2250, bf16=2250, fp8=4500),
}
"""By words of the GPU's name; the first row whose words it all has is the GPU's."""


def peak_flops(device_name: str, number_format: Format) -> float | None:
    """Peak FLOP/s of a GPU, by its name as the driver reports it; None if it is unknown, or a MIG instance: a part of a GPU."""
    words = set(re.split(r"[\s-]+", device_name))
    if "MIG" in words:
        return None
    rates = next((rates for model, rates in PEAKS.items() if words.issuperset(model)), None)
    if rates is None:
        return None
    rate: float | None = getattr(rates, number_format)
    if rate is None and number_format == "tf32":
        rate = rates.fp32
    return None if rate is None else rate * 1e12


def number_format(precision: PrecisionSettings) -> Format:
    """The fastest format that the matrix products of a run may use; float32 includes TF32 where torch permits it."""
    if precision.mode != "fp32":
        return precision.mode
    permits_tf32 = torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32
    return "tf32" if permits_tf32 else "fp32"


def device_peak_flops(device: torch.device, precision: PrecisionSettings) -> float | None:
    """Peak FLOP/s of a rank's device; None for a CPU or an unknown GPU."""
    if device.type != "cuda":
        return None
    return peak_flops(torch.cuda.get_device_name(device), number_format(precision))
