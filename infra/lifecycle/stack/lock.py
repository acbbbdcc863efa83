"""Whether another pulumi holds the lock of a stack: asked before its cluster or its state is changed, and said by Pulumi meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from infra.spec.errors import RefusedError
from infra.spec.release_rules import ROOT
from infra.spec.stack_outputs import find_pulumi

_LOCKED = ("the stack is currently locked", "Another update is currently in progress")
"""Pulumi's messages: of file, S3 and similar backends (pulumi, pkg/backend/diy/lock.go), and of Pulumi Cloud."""


def says_locked(line: str) -> bool:
    """Whether a line of Pulumi's says that the stack is locked; the next ones then say by whom."""
    return any(message in line for message in _LOCKED)


def locked_error(environment: str, said: str) -> RefusedError:
    """The refusal of a locked stack.

    Args:
        environment: name of the stack.
        said: Pulumi's message; its last line says who holds the lock.
    """
    holder = said.strip().splitlines()[-1].strip()
    return RefusedError(
        f"nothing was changed: stack {environment} is locked by another pulumi, which runs or was killed: {holder}",
        remedy=f"wait until it ends. If it was killed: `pulumi cancel -s {environment} --yes`, then repeat the command",
    )


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
    if says_locked(asked.stderr):
        raise locked_error(environment, asked.stderr)
