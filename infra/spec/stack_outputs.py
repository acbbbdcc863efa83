"""Read a stack's outputs from the `pulumi` CLI, or from a file with its output. `infra.spec.outputs` is their contract."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.spec.errors import PlatformError, RefusedError, SettingsError
from infra.spec.outputs import StackOutputs, read_outputs
from infra.spec.release_rules import ROOT
from infra.spec.section import nearest

_NO_STACK = "no stack named"
"""Pulumi's message for a stack that does not exist (pulumi, cmd/stack, `requireStack`)."""

_REMEDIES: Mapping[str, str] = {
    "passphrase": "set PULUMI_CONFIG_PASSPHRASE, or PULUMI_CONFIG_PASSPHRASE_FILE, to the passphrase of the stack's `pulumi stack init`",
    **dict.fromkeys(
        ("for login", "unable to open state directory", "could not list bucket"),
        "`pulumi login` where the state is; `make state-bucket ENV=…` prints the command for its bucket",
    ),
}
"""What to do about messages of Pulumi's, by a part of each."""

_WRITE = "write the stack's outputs there: pulumi stack output --json -s ENV > {file}"


OUTPUTS_VARIABLE = "RTP_STACK_OUTPUTS"
"""Environment variable: file with the output of `pulumi stack output --json`, for machines that cannot read Pulumi's state."""


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
            remedy="install the Pulumi CLI (https://www.pulumi.com/docs/install); graph, cost and release-check work without "
            "it, and so does job with OUTPUTS=outputs.json: make outputs ENV=… RECORDED=1 FILE=outputs.json",
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
        if _NO_STACK in answer.stderr:
            raise NoStackError(f"pulumi {name}: {answer.stderr.strip()}", remedy=_remedy_without_stack(environment))
        said = answer.stderr.strip() or _errors(answer.stdout)
        raise PlatformError(
            f"pulumi {name}: {said}", remedy=next((_REMEDIES[one] for one in _REMEDIES if one in said), "")
        )
    return answer.stdout


def _remedy_without_stack(environment: str) -> str:
    from infra.spec.settings.loading import environment_names  # noqa: PLC0415 - the schema of settings, for a message

    known = environment_names()
    if environment in known:
        return f"bring it up: `make up ENV={environment}`"
    # The stack of an environment whose file is in another checkout exists; this one has neither.
    return f"check the name: no file here has an environment {environment} ({nearest(environment, known) if known else 'there is none'})"


def _errors(output: str) -> str:
    """The errors in what `pulumi --json` prints, where they are instead of on standard error; the output if it is something else."""
    try:
        found = [one["message"].strip() for one in json.loads(output)["diagnostics"] if one["severity"] == "error"]
    except (ValueError, TypeError, KeyError):
        found = []
    return "\n".join(found) or output.strip()


def outputs_of_stack(environment: str) -> Mapping[str, Any]:
    """The outputs of a stack.

    Raises:
        NoStackError: the stack does not exist.
        PlatformError: pulumi failed; carries its message.
        SettingsError: pulumi's output is not a JSON object.
    """
    return _parsed(ask_pulumi(environment, "stack", "output", "--json"), file=f"outputs of {environment}")


def given_outputs(env: str, *, file: Path | None, environment: Mapping[str, str]) -> StackOutputs | None:
    """The outputs of a stack in `file`, else in the file $RTP_STACK_OUTPUTS; None if neither is given.

    Raises:
        SettingsError: the file has no outputs, or those of another environment than `env`.
    """
    named = environment.get(OUTPUTS_VARIABLE)
    if file is None and not named:
        return None
    source = file or Path(str(named))
    try:
        mapping = outputs_in_file(source)
    except SettingsError as error:
        if file is not None:
            raise
        raise SettingsError(
            f"{OUTPUTS_VARIABLE}={error.args[0]}", remedy=f"unset {OUTPUTS_VARIABLE}, or {error.remedy}"
        ) from error
    return _outputs_of(env, mapping, source=str(source))


def read_stack(env: str, *, file: Path | None, environment: Mapping[str, str]) -> StackOutputs:
    """The outputs of a stack: given ones, see `given_outputs`, else those that `pulumi` reads.

    Raises:
        PlatformError: there are no outputs.
        SettingsError: they are invalid, or of another environment than `env`.
    """
    given = given_outputs(env, file=file, environment=environment)
    return given or _outputs_of(env, outputs_of_stack(env), source=f"outputs of {env}")


def _outputs_of(env: str, mapping: Mapping[str, Any], *, source: str) -> StackOutputs:
    outputs = read_outputs(mapping, file=source)
    if outputs.environment != env:
        raise SettingsError(
            f"{source}: outputs of environment {outputs.environment}, not of {env}",
            remedy=f"use --env {outputs.environment}, or export those of {env}: pulumi stack output --json -s {env}",
        )
    return outputs


def outputs_in_file(file: Path) -> Mapping[str, Any]:
    """The outputs in a file that `pulumi stack output --json` wrote.

    Raises:
        SettingsError: the file does not exist, or does not contain a JSON object.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: not JSON: {error}", remedy=_WRITE.format(file=file)) from error
    except OSError as error:
        raise SettingsError(f"{file}: {str(error.strerror).lower()}", remedy=_WRITE.format(file=file)) from error
    return _parsed(text, file=str(file))


def _parsed(text: str, *, file: str) -> Mapping[str, Any]:
    try:
        mapping = json.loads(text)
    except json.JSONDecodeError as error:
        raise SettingsError(f"{file}: not JSON: {error}", remedy=_WRITE.format(file="FILE")) from error
    if not isinstance(mapping, dict):
        raise SettingsError(f"{file}: must be a JSON object of outputs by name, got {type(mapping).__name__}")
    return mapping
