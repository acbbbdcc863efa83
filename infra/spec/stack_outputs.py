"""Read a stack's outputs from the `pulumi` CLI, or from a file with its output. `infra.spec.outputs` validates them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.spec.errors import PlatformError, RefusedError, SettingsError
from infra.spec.release_rules import ROOT

_NO_STACK = "no stack named"
"""Pulumi's message for a stack that does not exist (pulumi, cmd/stack, `requireStack`)."""


class NoStackError(PlatformError):
    """The stack does not exist."""


def find_pulumi() -> str:
    """Path of the `pulumi` binary.

    Raises:
        RefusedError: it is not on PATH.
    """
    found = shutil.which("pulumi")
    if found is None:
        raise RefusedError(
            "no `pulumi` on PATH",
            remedy="install the Pulumi CLI (https://www.pulumi.com/docs/install); graph, cost and release-check work without it",
        )
    return found


def ask_pulumi(environment: str, *command: str) -> str:
    """What a command of `pulumi` prints about a stack.

    Args:
        environment: name of the stack.
        command: the command and its options, e.g. `stack`, `export`.

    Raises:
        NoStackError: the stack does not exist.
        PlatformError: pulumi failed; carries its message.
    """
    arguments = [find_pulumi(), *command, "--cwd", str(ROOT), "--stack", environment]
    answer = subprocess.run(arguments, check=False, capture_output=True, text=True)
    if answer.returncode != 0:
        name = " ".join(word for word in command if not word.startswith("-"))
        kind = NoStackError if _NO_STACK in answer.stderr else PlatformError
        raise kind(f"pulumi {name}: {answer.stderr.strip()}", remedy=f"bring it up: `make up ENV={environment}`")
    return answer.stdout


def outputs_of_stack(environment: str) -> Mapping[str, Any]:
    """The outputs of a stack.

    Raises:
        NoStackError: the stack does not exist.
        PlatformError: pulumi failed; carries its message.
        SettingsError: pulumi's output is not a JSON object.
    """
    return _parsed(ask_pulumi(environment, "stack", "output", "--json"), file=f"outputs of {environment}")


def outputs_in_file(file: Path) -> Mapping[str, Any]:
    """The outputs in a file that `pulumi stack output --json` wrote.

    Raises:
        SettingsError: the file does not exist, or does not contain a JSON object.
    """
    if not file.is_file():
        raise SettingsError(f"{file}: no such file")
    return _parsed(file.read_text(encoding="utf-8"), file=str(file))


def _parsed(text: str, *, file: str) -> Mapping[str, Any]:
    try:
        mapping = json.loads(text)
    except json.JSONDecodeError as error:
        raise SettingsError(f"{file}: not JSON: {error}") from error
    if not isinstance(mapping, dict):
        raise SettingsError(f"{file}: must be a JSON object of outputs by name, got {type(mapping).__name__}")
    return mapping
