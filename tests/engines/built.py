"""Programs that `make engines` has built."""

from __future__ import annotations

from pathlib import Path

from infra.lifecycle.sandbox.modules import Module
from tests.engines.kubernetes import engine_environment


def built(module: Module, program: str) -> Path | None:
    """The program of a module in the cache; None before `make engines` has built it."""
    path = module.cache_folder(engine_environment()) / program
    return path if path.is_file() else None
