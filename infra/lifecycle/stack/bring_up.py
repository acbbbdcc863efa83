"""`make up`: repositories, then images, then everything else, so that no update waits for what cannot come yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from infra.lifecycle.access.connection import connection
from infra.lifecycle.access.reach import Probe
from infra.lifecycle.account.aws import Session
from infra.lifecycle.stack.stage import AccountState, Stage, next_steps, read_account, stage_of
from infra.spec.release import load_release
from infra.spec.settings.stack import StackSettings

REPOSITORY_TARGETS = ("**rtp:aws:Registry**", "**rtp:aws:Encryption**")
"""URNs of the repositories and of their KMS key, as `pulumi up --target` takes them."""


class Images(Protocol):
    """Brings our images into an environment's registry."""

    def obstacle(self, account: AccountState, /) -> str | None:
        """Why the missing images cannot be pushed from here; None if they can."""
        ...

    def push(self, account: AccountState) -> None:
        """Build or copy the missing images.

        Raises:
            PlatformError: it failed; says why.
        """
        ...


class Pulumi(Protocol):
    """Runs `pulumi up`."""

    def __call__(self, *targets: str) -> int:
        """Update the stack, or only resources whose URNs match `targets`; returns pulumi's exit status."""
        ...


@dataclass(frozen=True, kw_only=True)
class BringUp:
    """One `make up`.

    Attributes:
        settings: the environment.
        account: what its account has before the first update.
        session: boto3 session in its region.
        probe: what this machine reaches.
        images: brings missing images into the registry.
        pulumi: runs `pulumi up`.
        update: runs `pulumi up` on a stack whose cluster exists, and keeps its jobs off the nodes that it replaces.
        say: prints a line.
    """

    settings: StackSettings
    account: AccountState
    session: Session
    probe: Probe
    images: Images
    pulumi: Pulumi
    update: Callable[[], int]
    say: Callable[[str], None]

    def run(self) -> int:
        """Update the stack in as many runs as it takes; returns pulumi's exit status.

        Raises:
            RefusedError: images are missing that the cluster needs, and they cannot be pushed from here.
        """
        account = self.account
        if account.missing:
            status = self._bring_images(account)
            if status:
                return status
            account = self._changed_account()
        stage = stage_of(self.settings, account)
        status = self._connected(account)
        if status or stage is Stage.ALL:
            return status
        return self._finish()

    def _bring_images(self, account: AccountState) -> int:
        """Push what is missing, after the repositories are there; if it cannot be pushed from here, only say so."""
        for one in account.missing:
            self.say(f"image {one.name}: {one.reason}")
        if obstacle := self.images.obstacle(account):
            self.say(f"images cannot be pushed from here: {obstacle}")
            return 0
        if not account.has_repositories:
            self.say("the repositories come first:")
            status = self.pulumi(*REPOSITORY_TARGETS)
            if status:
                return status
        self.images.push(account)
        return 0

    def _finish(self) -> int:
        """After the AWS resources: install the platform, if nothing is missing any more."""
        account = self._changed_account()
        if account.missing_for_platform or account.endpoint is None:
            for step in next_steps(self.settings, account):
                self.say(f"next: {step}")
            return 0
        self.say("the AWS resources are up; the platform follows:")
        return self._connected(account)

    def _connected(self, account: AccountState) -> int:
        with connection(self.settings, self.session, account.endpoint, self.probe, say=self.say):
            return self.pulumi() if account.endpoint is None else self.update()

    def _changed_account(self) -> AccountState:
        return read_account(self.settings, load_release(), self.session)
