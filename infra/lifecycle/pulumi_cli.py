"""Runs `pulumi` on a stack in the foreground."""

from __future__ import annotations

import subprocess
import sys

from infra.spec.errors import RefusedError
from infra.spec.release_rules import ROOT
from infra.spec.stack_outputs import find_pulumi

POLICY_PACK = "infra/policy"

_LOCKED = ("the stack is currently locked", "Another update is currently in progress")
"""Pulumi's messages for a locked stack: of file, S3 and similar backends, and of Pulumi Cloud."""


def run(command: str, *, environment: str, is_confirmed: bool) -> int:
    """Run `preview`, `up` or `destroy` on a stack in the foreground; preview and up with the policy pack.

    Args:
        command: Pulumi's command.
        environment: name of the stack.
        is_confirmed: do not ask for confirmation.

    Returns:
        pulumi's exit status.

    Raises:
        RefusedError: the stack is locked.
    """
    arguments = [find_pulumi(), command, "--cwd", str(ROOT), "--stack", environment]
    if command != "destroy":
        arguments += ["--policy-pack", POLICY_PACK]
    if is_confirmed and command != "preview":
        arguments.append("--yes")
    is_locked = False
    # Pulumi asks and shows progress on stdin and stdout, which stay the terminal's.
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as pulumi:
        assert pulumi.stderr is not None, "it is a pipe"
        for line in pulumi.stderr:
            sys.stderr.write(line)
            is_locked |= any(message in line for message in _LOCKED)
    if is_locked:
        raise RefusedError(
            f"stack {environment} is locked by another pulumi, which runs or was killed",
            remedy=f"wait until it ends. If it was killed: `pulumi cancel -s {environment}`, then repeat the command",
        )
    return pulumi.returncode
