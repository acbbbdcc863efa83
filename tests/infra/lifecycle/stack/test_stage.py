"""How much of the stack an update registers, by what the account has; against moto."""

from __future__ import annotations

import boto3
import pytest

from infra.lifecycle.image.availability import MissingImage
from infra.lifecycle.stack.stage import AccountState, Stage, next_steps, read_account, stage_of
from infra.spec.errors import RefusedError
from infra.spec.release import load_release
from tests.infra.aws.graphs import settings_of

MLFLOW, TRAINER = (MissingImage(name, "not in the registry") for name in ("mlflow", "trainer"))
NEW = MissingImage("mlflow", "repository missing")
ENDPOINT = "https://0123456789abcdef.gr7.us-east-1.eks.amazonaws.com"


def state(*missing: MissingImage, endpoint: str | None = None) -> AccountState:
    return AccountState(endpoint=endpoint, missing=missing)


def test_an_update_registers_what_can_be_completed() -> None:
    for environment, account, stage in (
        ("dev", state(NEW, TRAINER), Stage.AWS),
        ("dev", state(MLFLOW), Stage.AWS),
        ("dev", state(TRAINER), Stage.ALL),
        ("dev", state(), Stage.ALL),
        ("dev", state(TRAINER, endpoint=ENDPOINT), Stage.ALL),
        ("dev", state(NEW, endpoint=ENDPOINT), Stage.ALL),
        ("prod", state(), Stage.AWS),
        ("prod", state(endpoint=ENDPOINT), Stage.ALL),
    ):
        assert stage_of(settings_of(environment), account) is stage, (environment, account)


def test_a_cluster_whose_platform_images_are_missing_is_refused_with_both_ways_to_get_them() -> None:
    said = r"rtp-dev cannot start without these images:\n  mlflow: not in the registry"
    with pytest.raises(RefusedError, match=said) as caught:
        stage_of(settings_of("dev"), state(MLFLOW, TRAINER, endpoint=ENDPOINT))
    assert "trainer" not in str(caught.value.args[0])
    assert "make image PUSH=1 ENV=dev" in caught.value.remedy
    assert "make promote FROM=… TO=dev" in caught.value.remedy


def test_the_next_steps_are_in_order() -> None:
    for environment, account, words in (
        ("dev", state(MLFLOW), ["push the images", "install the platform"]),
        ("prod", state(), ["make tunnel ENV=prod", "install the platform"]),
        ("prod", state(MLFLOW), ["push the images", "make tunnel ENV=prod", "install the platform"]),
    ):
        steps = next_steps(settings_of(environment), account)
        assert len(steps) == len(words), (environment, account)
        assert all(word in step for word, step in zip(words, steps, strict=True)), steps


def test_an_account_that_cannot_be_reached_is_no_lack_of_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    session = boto3.Session(region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    with pytest.raises(RefusedError, match="AWS does not answer: Could not connect"):
        read_account(settings_of("dev"), load_release(), session)
