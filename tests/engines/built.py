"""Programs that `make engines` builds."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from infra.lifecycle.sandbox.modules import Module
from tests.engines.engines_build import await_build
from tests.engines.kubernetes import engine_environment


def find_program(module: Module, program: str, *also: str) -> Path | None:
    """Find a program by its variable, such as `PROMTOOL` for `promtool`, among the engines, for which it waits, or on PATH."""
    named = os.environ.get(program.upper())
    if named is not None:
        return Path(named)
    environment = engine_environment()
    await_build(environment, module)
    path = module.cache_folder(environment) / program
    if path.is_file():
        return path
    found = next(filter(None, map(shutil.which, (program, *also))), None)
    return None if found is None else Path(found)
