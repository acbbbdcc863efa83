"""The stack a command is for: its outputs, read and found to be of this checkout's release."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from infra.spec.catalog import load_catalog
from infra.spec.outputs import StackOutputs, TeamOutput, check_outputs, read_outputs
from infra.spec.release import load_release
from infra.spec.section import nearest
from infra.spec.stack_outputs import outputs_in_file, outputs_of_stack
from platform_charts.jobs.request import Target
from training.errors import SettingsError

OUTPUTS_VARIABLE = "RTP_STACK_OUTPUTS"
"""File with what `pulumi stack output --json` printed, where Pulumi's state cannot be read."""


def find_target(env: str, *, file: Path | None, environment: Mapping[str, str]) -> Target:
    """The stack, its release and catalogue.

    Args:
        env: name of the environment.
        file: its outputs; None takes the file that $RTP_STACK_OUTPUTS names, or asks `pulumi`.
        environment: the environment variables.

    Raises:
        PlatformError: there are no outputs, or they are not this release's.
        SettingsError: they are another environment's.
    """
    if file is None and environment.get(OUTPUTS_VARIABLE):
        file = Path(environment[OUTPUTS_VARIABLE])
    mapping = outputs_of_stack(env) if file is None else outputs_in_file(file)
    place = f"outputs of {env}" if file is None else str(file)
    outputs = read_outputs(mapping, file=place)
    if outputs.environment != env:
        raise SettingsError(
            f"{place}: outputs of environment {outputs.environment}, not of {env}",
            remedy=f"--env {outputs.environment}, or the outputs of {env}: pulumi stack output --json -s {env}",
        )
    target = Target(outputs=outputs, release=load_release(), catalog=load_catalog())
    check_outputs(outputs, target.release, catalog=target.catalog)
    return target


def find_team(outputs: StackOutputs, name: str | None) -> TeamOutput:
    """The team of that name, or the only one.

    Raises:
        SettingsError: there is none of that name, or several and none is named.
    """
    names = [team.name for team in outputs.teams]
    if name is None and len(names) == 1:
        return outputs.teams[0]
    for team in outputs.teams:
        if team.name == name:
            return team
    if name is None:
        known = ", ".join(names)
        raise SettingsError(
            f"stack {outputs.environment} has {len(names)} teams, and none is named", remedy=f"--team, one of {known}"
        )
    remedy = nearest(name, names) if names else "the environment's file has no team: add one and bring the stack up"
    raise SettingsError(f"stack {outputs.environment} has no team {name}", remedy=remedy)
