"""Whether another pulumi holds the lock of a stack, asked before its cluster or its state is changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from infra.spec.errors import RefusedError
from infra.spec.release_rules import ROOT
from infra.spec.stack_outputs import find_pulumi

_LOCKED = "the stack is currently locked"
"""Pulumi's message of file, S3 and similar backends (pulumi, pkg/backend/diy/lock.go)."""


def check_unlocked(environment: str) -> None:
    """Refuse a stack that another pulumi changes, as far as the backend says so before a change.

    No command only asks for the lock. `stack init` takes it and then refuses a stack that exists; it runs on a copy of the project's file,
    because it may write the stack's. Pulumi Cloud has no lock to ask for: there, the destroy itself is refused.

    Args:
        environment: name of a stack that exists.

    Raises:
        RefusedError: the stack is locked; carries Pulumi's line about who holds it.
    """
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "Pulumi.yaml", Path(folder))
        asked = subprocess.run(
            [find_pulumi(), "stack", "init", environment, "--no-select", "--non-interactive", "--cwd", folder],
            env={**os.environ, "PULUMI_CONFIG_PASSPHRASE": "of nothing"},
            capture_output=True,
            text=True,
            check=False,
        )
    if _LOCKED in asked.stderr:
        holder = asked.stderr.strip().splitlines()[-1].strip()
        raise RefusedError(
            f"nothing was changed: stack {environment} is locked by another pulumi, which runs or was killed: {holder}",
            remedy=f"wait until it ends. If it was killed: `pulumi cancel -s {environment}`, then repeat the command",
        )
