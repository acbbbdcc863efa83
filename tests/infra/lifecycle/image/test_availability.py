"""Which images of ours a registry lacks, and access to an environment's registry, against moto."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from infra.lifecycle.image import ecr
from infra.lifecycle.image.availability import MissingImage, missing_images
from infra.lifecycle.image.ecr import EnvironmentRegistry
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


def test_an_empty_account_lacks_the_repositories(account: Account) -> None:
    expected = (MissingImage("trainer", "repository missing"), MissingImage("mlflow", "repository missing"))
    assert missing(account) == expected
    assert missing(account, trainer=ABSENT, mlflow=ABSENT) == expected


def test_after_the_repositories_the_release_lacks_the_digests(account: Account) -> None:
    account.create("trainer", "mlflow")
    assert missing(account) == (
        MissingImage("trainer", "digest unresolved"),
        MissingImage("mlflow", "digest unresolved"),
    )


def test_an_image_that_was_pushed_elsewhere_is_missing_here(account: Account) -> None:
    account.create("trainer", "mlflow")
    pushed = put_image(account.ecr, "rtp-dev/mlflow", "0.1.0-0123456789ab")
    assert missing(account, trainer=ABSENT, mlflow=pushed) == (MissingImage("trainer", "not in the registry"),)


def test_nothing_is_missing_once_every_digest_is_there(account: Account) -> None:
    account.create("trainer", "mlflow")
    pushed = {name: put_image(account.ecr, f"rtp-dev/{name}", "0.1.0-0123456789ab") for name in ("trainer", "mlflow")}
    assert missing(account, **pushed) == ()


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


def test_an_unknown_profile_is_refused(account: Account) -> None:
    with pytest.raises(RefusedError, match=r"prod: The config profile \(absent\) could not be found"):
        EnvironmentRegistry.open("prod", profile="absent")


def test_credentials_for_another_registry_are_refused(account: Account) -> None:
    registry = EnvironmentRegistry.open("dev")
    other = EnvironmentRegistry("dev", registry.registry._replace(account="999999999999"), registry.client)
    with pytest.raises(RefusedError, match=r"that of dev is 999999999999\.dkr\.ecr"):
        other.log_in()


def test_an_absent_tag_has_no_digest(account: Account) -> None:
    account.create("mlflow")
    assert EnvironmentRegistry.open("dev").digest(load_release().images["mlflow"], "0.1.0-x") is None
