"""Which images of ours a registry lacks, and access to an environment's registry, against moto."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from infra.lifecycle.image import ecr
from infra.lifecycle.image.availability import MissingImage, missing_images
from infra.lifecycle.image.ecr import EnvironmentRegistry
from infra.lifecycle.image.recipes import ImageName
from infra.spec.errors import RefusedError
from infra.spec.release import ReleaseManifest, load_release
from infra.spec.settings import load_environment
from tests.infra.lifecycle.image.accounts import Account, allow_moto, put_image

ABSENT = f"sha256:{'d' * 64}"


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    with allow_moto(monkeypatch):
        yield Account("dev")


def release_with(digests: Mapping[str, str]) -> ReleaseManifest:
    """The release with these digests of images of ours."""
    release = load_release()
    images = {name: release.images[name].model_copy(update={"digest": digest}) for name, digest in digests.items()}
    return release.model_copy(update={"images": {**release.images, **images}})


def missing(account: Account, **digests: str) -> tuple[MissingImage, ...]:
    return missing_images(account.ecr, account.registry, release_with(digests))


def test_an_empty_account_lacks_the_repositories_then_the_digests_then_the_images(account: Account) -> None:
    def lacking(reason: str, *names: ImageName) -> tuple[MissingImage, ...]:
        return tuple(MissingImage(name, reason) for name in names)

    assert missing(account) == lacking("repository missing", "trainer", "mlflow")
    assert missing(account, trainer=ABSENT, mlflow=ABSENT) == lacking("repository missing", "trainer", "mlflow")
    account.create("trainer", "mlflow")
    assert missing(account) == lacking("digest unresolved", "trainer", "mlflow")
    pushed = {"mlflow": put_image(account.ecr, "rtp-dev/mlflow", "0.1.0-0123456789ab"), "trainer": ABSENT}
    assert missing(account, **pushed) == lacking("not in the registry", "trainer")
    pushed["trainer"] = put_image(account.ecr, "rtp-dev/trainer", "0.1.0-0123456789ab")
    assert missing(account, **pushed) == ()
    assert EnvironmentRegistry.open("dev").digest(load_release().images["mlflow"], "0.1.0-x") is None


def test_another_error_of_aws_is_not_an_answer(account: Account) -> None:
    with Stubber(account.ecr) as stubbed:
        stubbed.add_client_error("describe_images", "AccessDeniedException")
        with pytest.raises(ClientError, match="AccessDenied"):
            missing(account, trainer=ABSENT, mlflow=ABSENT)


def test_the_registry_follows_from_account_region_and_name(account: Account) -> None:
    registry = EnvironmentRegistry.open("dev").registry
    assert registry == account.registry
    assert registry.host == "123456789012.dkr.ecr.us-east-1.amazonaws.com"
    assert registry.prefix == f"{registry.host}/rtp-dev"
    assert registry.name(load_release().images["trainer"]) == "rtp-dev/trainer"


def test_an_account_that_the_environment_does_not_allow_is_refused(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ecr, "load_environment", load_environment)
    with pytest.raises(RefusedError, match="AWS account 123456789012 may not hold environment prod"):
        EnvironmentRegistry.open("prod")


def test_an_unknown_profile_and_credentials_for_another_registry_are_refused(account: Account) -> None:
    with pytest.raises(RefusedError, match=r"prod: The config profile \(absent\) could not be found"):
        EnvironmentRegistry.open("prod", profile="absent")
    registry = EnvironmentRegistry.open("dev")
    other = EnvironmentRegistry("dev", registry.registry._replace(account="999999999999"), registry.client)
    with pytest.raises(RefusedError, match=r"that of dev is 999999999999\.dkr\.ecr"):
        other.log_in()
