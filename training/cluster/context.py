"""The stack and the team of a command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.spec.catalog import load_catalog
from infra.spec.outputs import StackOutputs, TeamOutput, check_outputs
from infra.spec.release import load_release
from infra.spec.section import nearest
from infra.spec.stack_outputs import read_stack
from platform_charts.jobs.request import Target
from training.errors import SettingsError


@dataclass(frozen=True, kw_only=True)
class ClusterContext:
    """The environment, stack and team of a command.

    Attributes:
        env: name of the environment.
        target: its stack, and this checkout's release.
        team: the team whose namespace and queue the jobs are in.
    """

    env: str
    target: Target
    team: TeamOutput

    def hint(self, command: str, job: str) -> str:
        """The command line for another command on a job, e.g. `make stop ENV=dev JOB=digits`."""
        team = f" TEAM={self.team.name}" if len(self.target.outputs.teams) > 1 else ""
        return f"make {command} ENV={self.env} JOB={job}{team}"


def read_target(env: str, *, file: Path | None, environment: Mapping[str, str]) -> Target:
    """The outputs of a stack that this checkout's release deployed, with that release and the catalogue.

    Args:
        env: name of the environment.
        file: its outputs; None reads the file $RTP_STACK_OUTPUTS or runs `pulumi`.
        environment: the environment variables.

    Raises:
        PlatformError: there are no outputs, or they are of another release.
        SettingsError: they are of another environment.
    """
    outputs = read_stack(env, file=file, environment=environment)
    target = Target(outputs=outputs, release=load_release().with_digests(outputs.digests), catalog=load_catalog())
    check_outputs(outputs, target.release, catalog=target.catalog)
    return target


def team_named(outputs: StackOutputs, name: str | None) -> TeamOutput:
    """The team of that name; None means the only one.

    Raises:
        SettingsError: the team is unknown, or required because there are several.
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
            f"stack {outputs.environment} has {len(names)} teams, choose one", remedy=f"TEAM=… (--team), one of {known}"
        )
    remedy = nearest(name, names) if names else "add a team to the environment's file and bring the stack up"
    raise SettingsError(f"stack {outputs.environment} has no team {name}", remedy=remedy)
