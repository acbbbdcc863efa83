"""Runs `pulumi` on a stack in the foreground."""

from __future__ import annotations

import subprocess

from infra.spec.release_rules import ROOT
from infra.spec.stack_outputs import find_pulumi

POLICY_PACK = "infra/policy"


def run(command: str, *, environment: str, is_confirmed: bool) -> int:
    """Run `preview`, `up` or `destroy` on a stack in the foreground; preview and up with the policy pack.

    Args:
        command: Pulumi's command.
        environment: name of the stack.
        is_confirmed: do not ask for confirmation.

    Returns:
        pulumi's exit status.
    """
    arguments = [find_pulumi(), command, "--cwd", str(ROOT), "--stack", environment]
    if command != "destroy":
        arguments += ["--policy-pack", POLICY_PACK]
    if is_confirmed and command != "preview":
        arguments.append("--yes")
    return subprocess.run(arguments, check=False).returncode
