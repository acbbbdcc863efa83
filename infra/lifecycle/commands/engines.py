"""Build the engines: programs and CRDs for the sandbox and the tests."""

from __future__ import annotations

import os

from infra.lifecycle.options import EnginesOptions
from infra.lifecycle.sandbox.build import build
from infra.lifecycle.sandbox.modules import MODULES, MONITORING_MODULES, NODE_MODULES, PREVIOUS_MODULES


def engines(options: EnginesOptions) -> int:
    """Build the missing programs and copy the missing CRDs."""
    folder = build(os.environ, say=_say, has_real_nodes=options.real)
    modules = (*MODULES, *PREVIOUS_MODULES, *MONITORING_MODULES, *(NODE_MODULES if options.real else ()))
    names = [f"{module.title} {module.release}" for module in modules]
    _say(f"{', '.join(dict.fromkeys(names))} are in {folder}")
    return 0


def _say(line: str) -> None:
    print(f"engines: {line}", flush=True)
