"""Runs the steps of an upgrade, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra.kube.api import KubernetesApi
from infra.lifecycle.rollout.hold import Say
from infra.lifecycle.rollout.plan import Choice
from infra.lifecycle.rollout.update import GuardedUpdate
from infra.lifecycle.upgrade.steps import Step, way_back
from infra.spec.errors import RefusedError


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    """One upgrade of a stack whose cluster may run jobs.

    A step is done when the preview has no change of it any more. So an upgrade that ended in the middle is repeated with the same command.

    Attributes:
        environment: name of the environment.
        api: the API server, as an administrator.
        steps: the steps that have something to do, in order.
        pulumi: runs `pulumi up` on all resources but those with these URNs; returns its exit status.
        preview: the document of `pulumi preview --json`, for the last step.
        choose: what to do about jobs on nodes that roll.
        verify: what must hold of the canary group before the other GPU groups follow; returns an exit status.
        proceeds: asks whether to go on after the canary group.
        seconds: how long to wait for jobs.
        say: prints a line.
    """

    environment: str
    api: KubernetesApi
    steps: Sequence[Step]
    pulumi: Callable[[Sequence[str]], int]
    preview: Callable[[], Mapping[str, Any]]
    choose: Callable[[], Choice]
    verify: Callable[[], int]
    proceeds: Callable[[], bool]
    seconds: float
    say: Say

    def run(self) -> int:
        """Take every step; returns the exit status of the one that failed, or of the check of the canary group.

        Raises:
            RefusedError: no one chose what happens to the jobs, they did not end in time, or the user does not go on after the canary.
            PlatformError: the cluster does not answer.
        """
        is_verified = False
        for number, step in enumerate(self.steps, start=1):
            self.say(f"== step {number} of {len(self.steps)}, {step.name}: {step.title}")
            # An earlier run of the command may have updated the canary group, and failed or ended there.
            if step.name == "gpu-nodes" and not is_verified and (status := self._check_canary()):
                return status
            if status := self._take(step):
                self._explain_failure(step)
                return status
            if step.name == "canary":
                if status := self._check_canary():
                    return status
                is_verified = True
        return 0

    def _take(self, step: Step) -> int:
        is_whole = not step.excluded
        return GuardedUpdate(
            environment=self.environment,
            api=self.api,
            # What earlier steps could not know may have changed what is left.
            preview=self.preview() if is_whole else step.preview,
            pulumi=lambda: self.pulumi(step.excluded),
            choose=self.choose,
            seconds=self.seconds,
            say=self.say,
        ).run()

    def _check_canary(self) -> int:
        if status := self.verify():
            self.say(
                "the canary group does not pass its check; it stays as it is, and so do the other GPU groups. The same command "
                "checks it again"
            )
            self.say(f"way back: {way_back('canary')}")
            return status
        if any(step.name == "gpu-nodes" for step in self.steps) and not self.proceeds():
            raise RefusedError(
                f"{self.environment} is upgraded up to its canary group; the other GPU groups run the nodes that they had",
                remedy="repeat the command to go on",
            )
        return 0

    def _explain_failure(self, step: Step) -> None:
        self.say(f"step {step.name} failed; the steps before it are done, and the same command continues with it")
        self.say(f"way back: {way_back(step.name)}")
