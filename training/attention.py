"""Chooses the kernel of `scaled_dot_product_attention`, and finds out which one has run.

torch chooses among its kernels by device, dtype and shapes: flash attention (Dao et al., arXiv:2205.14135), memory-efficient attention
(Rabe and Staats, arXiv:2112.05682), and plain matrix products.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from torch.nn.attention import SDPBackend, sdpa_kernel

from training.errors import SettingsError

_BACKENDS: Final = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}

_KERNELS: Final = {
    "aten::_scaled_dot_product_flash_attention": "flash",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "flash",
    "aten::_scaled_dot_product_efficient_attention": "efficient",
    "aten::_scaled_dot_product_cudnn_attention": "cudnn",
    "aten::_scaled_dot_product_attention_math": "math",
}
"""Kernels by the operator that a profiler records."""

_NOT_FOUND: Final = ("No available kernel", "No viable backend")
"""How torch begins the error of a call that no allowed kernel can compute, on GPUs and on CPUs."""


@contextmanager
def attention_kernel(name: str) -> Iterator[None]:
    """Compute attention with one kernel only, in every thread of this process; `auto` leaves the choice to torch.

    Raises:
        SettingsError: the kernel cannot compute a call of the model.
    """
    if name == "auto":
        yield
        return
    with sdpa_kernel(_BACKENDS[name]):
        try:
            yield
        except RuntimeError as error:
            if not str(error).startswith(_NOT_FOUND):
                raise
            raise SettingsError(
                f"compute.attention={name}: that kernel cannot compute the model's attention on this device, in this precision, or with "
                "its shapes, masks or dropout",
                remedy="set compute.attention=auto or math, or precision.mode=bf16",
            ) from error


def kernels_among(operators: Iterable[str]) -> list[str]:
    """The kernels that have run, in alphabetical order.

    Args:
        operators: names of the operators that a profiler has recorded.
    """
    return sorted({_KERNELS[name] for name in operators if name in _KERNELS})
