"""Looking an image up in ECR, as moto fakes it, and in the registry of a sandbox, which is real."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from infra.lifecycle.image.plain_registry import PlainRegistry
from infra.spec.errors import NoAnswerError, RefusedError
from infra.spec.release import load_release
from tests.engines.oci_registry import push_image
from tests.engines.ports import free_port
from tests.engines.sandbox_registry import sandbox_registry
from tests.training.cluster.team_cluster import target
from training.cluster.registry import check_image, check_images, read_annotations

REGISTRY = "123456789012.dkr.ecr.us-east-1.amazonaws.com"


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A repository `trainer` with one image, tag 0.1.0; gives its digest."""
    import boto3  # noqa: PLC0415 - slow, and one test file needs it

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        ecr = boto3.client("ecr", region_name="us-east-1")
        ecr.create_repository(repositoryName="trainer")
        manifest = '{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": [], "config": {}}'
        yield ecr.put_image(repositoryName="trainer", imageManifest=manifest, imageTag="0.1.0")["image"]["imageId"]


MISSING = r"is not in the registry .*\n.*make image PUSH=1"


def test_an_image_is_looked_up_by_tag_and_digest(repository: dict[str, str]) -> None:
    for image in ("trainer:0.1.0", f"trainer@{repository['imageDigest']}"):
        assert check_image(f"{REGISTRY}/{image}") == ""
    for image in (f"trainer@sha256:{'0' * 64}", "trainer:9.9.9", "another:0.1.0"):
        with pytest.raises(RefusedError, match=MISSING):
            check_image(f"{REGISTRY}/{image}")
    assert check_image("localhost:5000/trainer:0.1.0") == "localhost:5000/trainer:0.1.0 is not in ECR"


def test_an_image_that_was_never_pushed_is_refused_unless_the_stack_is_recorded_only() -> None:
    image = f"{REGISTRY}/trainer:not-pushed"
    check_images(target().outputs, image)
    with pytest.raises(RefusedError, match=r"no digest of image \S+/trainer: it was never pushed\n.*make image PUSH=1"):
        check_images(target(is_recorded=False).outputs, image)


def test_without_credentials_the_reason_is_returned_and_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert "credentials" in check_image(f"{REGISTRY}/trainer:0.1.0")


def test_an_image_of_a_sandbox_is_looked_up_in_its_registry(tmp_path: Path) -> None:
    with sandbox_registry(tmp_path) as host:
        registry, trainer = PlainRegistry(host, "rtp-dev"), load_release().images["trainer"]
        pushed = push_image(registry.remote(trainer), "a", [b"packages"])
        repository = registry.repository(trainer)
        assert check_image(f"{repository}@{pushed.digest}") == ""
        assert check_image(f"{repository}:a") == ""
        assert read_annotations(f"{repository}:a") == {}
        for reference in (f"{repository}@sha256:{'0' * 64}", f"{repository}:b", f"{host}/rtp-prod/trainer:a"):
            with pytest.raises(RefusedError, match=MISSING):
                check_image(reference)


def test_a_registry_of_a_sandbox_that_is_gone_gives_no_answer() -> None:
    host = f"127.0.0.1:{free_port()}"
    assert check_image(f"{host}/rtp-dev/trainer:a") == f"registry {host}: [Errno 111] Connection refused"
    with pytest.raises(NoAnswerError, match="refused"):
        read_annotations(f"{host}/rtp-dev/trainer:a")
