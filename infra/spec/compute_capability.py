"""Compute capability of NVIDIA GPUs: the generation of a GPU, which decides what its tensor cores compute with."""

from __future__ import annotations

from typing import Final

Capability = tuple[int, int]
"""Major and minor number, which compare as generations do."""

FLOAT8: Final[Capability] = (8, 9)
"""The first with 8-bit floating-point numbers: Ada. Hopper, 9.0, and Blackwell, 10.0 and later, have them too (CUDA C++ programming guide,
"Compute Capabilities")."""


def parse_capability(text: str) -> Capability:
    """The capability of a text such as 8.9, as NVIDIA writes it."""
    major, minor = text.strip().split(".")
    return int(major), int(minor)


def written(capability: Capability) -> str:
    """The capability as text, e.g. 8.9."""
    return ".".join(map(str, capability))
