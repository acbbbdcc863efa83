"""AWS accounts of environments, as moto fakes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import pytest
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID

from infra.lifecycle.image import ecr
from infra.spec.registry_names import Registry
from infra.spec.release import load_release
from infra.spec.settings import StackSettings, load_environment


def settings_in_moto(environment: str) -> StackSettings:
    """An environment that may be in moto's account."""
    settings = load_environment(environment)
    aws = settings.aws.model_copy(update={"allowed_accounts": (DEFAULT_ACCOUNT_ID,)})
    return settings.model_copy(update={"aws": aws})


@contextmanager
def allow_moto(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fake AWS, in whose account every environment may be."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setattr(ecr, "load_environment", settings_in_moto)
    with mock_aws():
        yield


class Account:
    """The account of an environment."""

    def __init__(self, environment: str) -> None:
        self.registry = Registry.of(settings_in_moto(environment), account=DEFAULT_ACCOUNT_ID)
        self.ecr = boto3.client("ecr", region_name=self.registry.region)

    def create(self, *images: str) -> None:
        """Create the repositories of images, as `up` does."""
        for image in images:
            name = self.registry.name(load_release().images[image])
            self.ecr.create_repository(repositoryName=name, imageTagMutability="IMMUTABLE")


def put_image(client: Any, repository: str, tag: str) -> str:  # noqa: ANN401 - boto3 makes its classes at run time
    """Put an image into a repository; returns its digest."""
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"digest": "sha256:" + "0" * 64, "size": 1, "mediaType": "x"},
        "layers": [],
        "annotations": {"tag": tag},
    }
    answer = client.put_image(repositoryName=repository, imageTag=tag, imageManifest=json.dumps(manifest))
    return str(answer["image"]["imageId"]["imageDigest"])
