"""Build what the sandbox and the tests run."""

from __future__ import annotations

import argparse
import os

from infra.lifecycle.sandbox.build import build
from infra.lifecycle.sandbox.programs import kubernetes_version


def engines(_options: argparse.Namespace) -> int:
    """Build the control plane's programs, where they are not there yet."""
    folder = build(os.environ, say=_say)
    _say(f"Kubernetes {kubernetes_version()} is in {folder}")
    return 0


def _say(line: str) -> None:
    print(f"engines: {line}", flush=True)
