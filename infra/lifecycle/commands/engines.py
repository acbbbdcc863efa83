"""Build the engines: programs and CRDs for the sandbox and the tests."""

from __future__ import annotations

import os

from infra.lifecycle.sandbox.build import build
from infra.lifecycle.sandbox.modules import MODULES
from infra.spec.command_line import NoOptions


def engines(_options: NoOptions) -> int:
    """Build the missing programs and copy the missing CRDs."""
    folder = build(os.environ, say=_say)
    _say(f"{', '.join(f'{module.title} {module.version}' for module in MODULES)} are in {folder}")
    return 0


def _say(line: str) -> None:
    print(f"engines: {line}", flush=True)
