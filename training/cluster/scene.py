"""Where a command on a cluster is played."""

from __future__ import annotations

from dataclasses import dataclass

from infra.spec.outputs import TeamOutput
from platform_charts.jobs.request import Target


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The stack and the team's part of it.

    Attributes:
        env: name of the environment.
        target: its stack, and this checkout's release.
        team: whose namespace and queue the jobs are in.
    """

    env: str
    target: Target
    team: TeamOutput

    def hint(self, command: str, job: str) -> str:
        """What to type for another command on a job, e.g. `make stop ENV=dev JOB=digits`."""
        team = f" TEAM={self.team.name}" if len(self.target.outputs.teams) > 1 else ""
        return f"make {command} ENV={self.env} JOB={job}{team}"
