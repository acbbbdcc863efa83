"""`make up` from an empty account: repositories, images, then the rest; Pulumi is a double that creates what it would."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import boto3
import pytest
from moto import mock_aws

from infra.lifecycle.stack.bring_up import REPOSITORY_TARGETS, BringUp
from infra.lifecycle.stack.stage import AccountState, Stage, read_account, stage_of
from infra.spec.errors import PlatformError, RefusedError
from infra.spec.names import cluster_name
from infra.spec.release import ReleaseManifest, load_release
from infra.spec.settings import StackSettings
from tests.infra.aws.graphs import settings_of
from tests.infra.lifecycle.access.test_reach import Machine
from tests.infra.lifecycle.image.accounts import put_image


@dataclass
class Account:
    """One environment in moto's account, changed by doubles of Pulumi and of the image commands, which note their steps."""

    settings: StackSettings
    session: boto3.Session
    release: ReleaseManifest
    obstacle_text: str | None = None
    steps: list[str] = field(default_factory=list)
    fails: str = ""

    def obstacle(self, _account: AccountState) -> str | None:
        return self.obstacle_text

    def push(self, account: AccountState) -> None:
        self.steps.append("images")
        if self.fails == "images":
            raise PlatformError("docker failed")
        images = dict(self.release.images)
        for one in account.missing:
            entry = images[one.name]
            repository = f"{cluster_name(self.settings)}/{entry.repository}"
            digest = put_image(self.session.client("ecr"), repository, f"0.1.0-{one.name}")
            images[one.name] = entry.model_copy(update={"digest": digest})
        self.release = self.release.model_copy(update={"images": images})

    def pulumi(self, *targets: str) -> int:
        stage = stage_of(self.settings, self.state())
        self.steps.append("repositories" if targets else stage.value)
        assert targets in {(), REPOSITORY_TARGETS}
        if self.fails == self.steps[-1]:
            return 255
        if not self.state().has_repositories:
            for name in ("mlflow", "trainer"):
                self.session.client("ecr").create_repository(repositoryName=f"{cluster_name(self.settings)}/{name}")
        if not targets and self.state().endpoint is None:
            named = {"name": cluster_name(self.settings), "roleArn": "arn:aws:iam::123456789012:role/cluster"}
            self.session.client("eks").create_cluster(**named, resourcesVpcConfig={})
        return 0

    def state(self) -> AccountState:
        return read_account(self.settings, self.release, self.session)


Start = Callable[[str], Account]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    with mock_aws():
        session = boto3.Session(region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")

        def make(environment: str) -> Account:
            account = Account(settings_of(environment), session, load_release())
            monkeypatch.setattr("infra.lifecycle.stack.bring_up.load_release", lambda: account.release)
            return account

        yield make


def bring_up(account: Account, said: list[str] | None = None) -> int:
    """Run `make up` on a machine that reaches every endpoint."""
    state = account.state()
    return BringUp(
        settings=account.settings,
        account=state,
        session=account.session,
        probe=_Everywhere() if state.endpoint is None else Machine(reached=(state.endpoint,)),
        images=account,
        pulumi=account.pulumi,
        update=account.pulumi,
        say=(said if said is not None else []).append,
    ).run()


class _Everywhere(Machine):
    """A machine that reaches every URL."""

    def connect(self, url: str) -> str | None: ...


def test_an_empty_account_needs_one_command(start: Start) -> None:
    account = start("dev")
    assert bring_up(account) == 0
    assert account.steps == ["repositories", "images", Stage.ALL.value]
    assert bring_up(account) == 0
    assert account.steps[3:] == [Stage.ALL.value]


def test_a_private_environment_is_installed_after_its_aws_resources(start: Start) -> None:
    account = start("prod")
    assert bring_up(account) == 0
    assert account.steps == ["repositories", "images", Stage.AWS.value, Stage.ALL.value]


def test_without_an_engine_the_aws_resources_come_up_and_the_next_steps_are_said(start: Start) -> None:
    account, said = start("dev"), list[str]()
    account.obstacle_text = "no engine on this machine can build an image"
    assert bring_up(account, said) == 0
    assert account.steps == [Stage.AWS.value]
    assert "images cannot be pushed from here: no engine on this machine can build an image" in said
    assert said[-2].startswith("next: push the images: `make image PUSH=1 ENV=dev`")
    assert said[-1] == "next: install the platform: `pulumi up -s dev`"
    with pytest.raises(RefusedError, match="cannot start without these images"):
        bring_up(account)
    assert account.steps == [Stage.AWS.value]


@pytest.mark.parametrize("number", range(3))
def test_a_failed_step_is_the_last(number: int, start: Start) -> None:
    account, steps = start("prod"), ["repositories", "images", Stage.AWS.value]
    account.fails = steps[number]
    if account.fails == "images":
        with pytest.raises(PlatformError, match="docker failed"):
            bring_up(account)
    else:
        assert bring_up(account) == 255
    assert account.steps == steps[: number + 1]
    account.fails = ""
    assert bring_up(account) == 0
    assert account.steps[-1] == Stage.ALL.value
