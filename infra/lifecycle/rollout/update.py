"""An update that keeps jobs off the nodes it replaces: read what rolls, let the user choose, hold the queues meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from infra.kube.api import KubernetesApi
from infra.lifecycle.rollout.hold import Say, holding
from infra.lifecycle.rollout.jobs import RunningJob, queued_jobs, running_jobs
from infra.lifecycle.rollout.plan import Choice, RollPlan, explain, mode_of, plan_of_update
from infra.lifecycle.rollout.queues import kept


@dataclass(frozen=True, kw_only=True)
class GuardedUpdate:
    """One update of a stack whose cluster may run jobs.

    Attributes:
        environment: name of the environment.
        api: the API server, as an administrator.
        preview: what the update does, as `pulumi preview --json` has it.
        pulumi: runs `pulumi up`; returns its exit status.
        choose: what to do about jobs on nodes that roll; raises RefusedError if no one can be asked.
        seconds: how long to wait for those jobs.
        say: prints a line.
        confirm: asks whether to go on, once what happens to jobs is printed; raises RefusedError if not. None: do not ask.
    """

    environment: str
    api: KubernetesApi
    preview: Mapping[str, Any]
    pulumi: Callable[[], int]
    choose: Callable[[], Choice]
    seconds: float
    say: Say
    confirm: Callable[[], None] | None = None

    def run(self) -> int:
        """Update; returns pulumi's exit status.

        Raises:
            RefusedError: no one confirmed, or chose what happens to the jobs, or they did not end in time; nothing was changed.
            PlatformError: the cluster does not answer.
        """
        plan = plan_of_update(self.preview)
        jobs = jobs_of(plan, self.api)
        for line in explain(plan, jobs, queued_jobs(self.api, plan.teams)):
            self.say(line)
        if self.confirm is not None:
            self.confirm()
        if not plan.rolling and not jobs:
            return self._update()
        mode = mode_of(self.choose()) if jobs else "Hold"
        if mode is None:
            return self._update()
        with holding(
            self.api,
            mode,
            env=self.environment,
            say=self.say,
            seconds=self.seconds,
            groups=plan.groups,
            teams=plan.teams,
        ):
            return self._update()

    def _update(self) -> int:
        with kept(self.api, say=self.say):
            return self.pulumi()


def jobs_of(plan: RollPlan, api: KubernetesApi) -> tuple[RunningJob, ...]:
    """The jobs that an update ends, with their progress: those on its node groups, and of the teams that it removes."""
    if not plan.rolling and not plan.teams:
        return ()
    return running_jobs(api, groups=plan.groups, teams=plan.teams, has_progress=True)
