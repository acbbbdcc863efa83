"""`image`, against moto's ECR, with an engine that builds nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from infra.lifecycle.commands import image as command
from infra.lifecycle.image import ecr as ecr_api
from infra.lifecycle.image import engines, plan
from infra.lifecycle.image.ecr import Repository
from infra.lifecycle.image.plan import ImageName
from infra.lifecycle.options import ImageOptions
from infra.spec.errors import PlatformError, RefusedError, SettingsError
from infra.spec.release import RELEASE_FILE, load_release
from tests.infra.lifecycle.image.samples import checkout, release

REGION = "us-east-1"
PROGRAM = """#!/bin/sh
echo "$@" >> {calls}
[ "$1" = login ] && cat >> {calls}.password
exit 0
"""


class Ecr:
    """An account's registry with the repository `rtp-dev/mlflow`."""

    def __init__(self) -> None:
        self.client = boto3.client("ecr", region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test")
        found = self.client.create_repository(repositoryName="rtp-dev/mlflow", imageTagMutability="IMMUTABLE")
        self.url: str = found["repository"]["repositoryUri"]

    def put(self, tag: str) -> str:
        """Push an image with a tag; returns its digest."""
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"digest": "sha256:" + "0" * 64, "size": 1, "mediaType": "x"},
            "layers": [],
            "annotations": {"tag": tag},
        }
        answer = self.client.put_image(
            repositoryName="rtp-dev/mlflow", imageTag=tag, imageManifest=json.dumps(manifest)
        )
        return str(answer["image"]["imageId"]["imageDigest"])


@pytest.fixture
def ecr() -> Iterator[Ecr]:
    with mock_aws():
        yield Ecr()


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """File with the arguments of the engine's calls; the file beside it has their standard input."""
    (tmp_path / "bin").mkdir()
    program, notes = tmp_path / "bin/buildah", tmp_path / "calls"
    program.write_text(PROGRAM.format(calls=notes))
    program.chmod(0o755)
    monkeypatch.setattr(engines, "ENGINES", (engines.Buildah(),))
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return notes


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the release manifest and a checkout of MLflow's image, used by the command."""
    file = Path(shutil.copy(RELEASE_FILE, tmp_path))
    monkeypatch.setattr(command, "RELEASE_FILE", file)
    monkeypatch.setattr(command, "ROOT", checkout(tmp_path / "checkout", "mlflow"))
    monkeypatch.setattr(command, "load_release", release)
    return file


def push_to(ecr: Ecr, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the stack's outputs name this registry."""
    registry = command._Registry(ecr.client, {"mlflow": ecr.url})
    monkeypatch.setattr(command, "_registry", lambda _: registry)


def run(*, push: bool = False, image: ImageName | None = "mlflow", **options: Any) -> int:  # noqa: ANN401
    """Run the command."""
    return command.image(ImageOptions(image=image, push=push, **options))


def test_an_image_is_built_under_a_local_name_with_its_sbom(
    calls: Path, manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == 0
    revision = plan.read_source(manifest.parent / "checkout", "mlflow").revision[:12]
    assert f"--tag ray-train-platform/mlflow:{load_release().platform}-{revision}" in calls.read_text()
    assert [path.suffixes[-2:] for path in (manifest.parent / "checkout/.local/sbom").iterdir()] == [[".cdx", ".json"]]
    assert "1 packages" in capsys.readouterr().out


def test_a_pushed_revision_is_not_built_again(
    ecr: Ecr, calls: Path, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push_to(ecr, monkeypatch)
    source = plan.read_source(manifest.parent / "checkout", "mlflow")
    digest = ecr.put(plan.plan("mlflow", release(), source).tag)
    assert run(push=True, env="dev") == 0
    assert load_release(manifest).images["mlflow"].digest == digest
    assert calls.read_text() == "info\n"


def test_a_push_passes_the_password_on_standard_input(
    ecr: Ecr, calls: Path, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push_to(ecr, monkeypatch)
    with pytest.raises(PlatformError, match="the registry does not have it"):
        run(push=True, env="dev")
    words = [line.split() for line in calls.read_text().splitlines()]
    assert [line[0] for line in words] == ["info", "build", "login", "push"]
    password = calls.with_name("calls.password").read_text()
    assert password
    assert password not in calls.read_text()
    assert load_release(manifest).images["mlflow"].digest is None


def test_uncommitted_changes_are_not_pushed(calls: Path, manifest: Path) -> None:
    (manifest.parent / "checkout/platform_charts/images/mlflow_server/module.py").write_text("changed\n")
    with pytest.raises(RefusedError, match="not pushed"):
        run(push=True, env="dev")
    assert not calls.exists()


def test_a_push_needs_an_environment(calls: Path, manifest: Path) -> None:
    with pytest.raises(SettingsError, match="the stack whose registry"):
        run(push=True)


def test_an_absent_tag_has_no_digest(ecr: Ecr) -> None:
    assert ecr_api.digest(ecr.client, Repository.of(ecr.url), "0.1.0-x") is None


def test_an_absent_repository_is_refused(ecr: Ecr) -> None:
    repository = Repository.of(ecr.url)._replace(name="rtp-dev/trainer")
    with pytest.raises(RefusedError, match="no repository rtp-dev/trainer"):
        ecr_api.digest(ecr.client, repository, "0.1.0-x")


def test_credentials_of_another_account_are_refused(ecr: Ecr) -> None:
    other = Repository.of(ecr.url)._replace(registry="999999999999.dkr.ecr.us-east-1.amazonaws.com")
    with pytest.raises(RefusedError, match="the stack's is 999999999999"):
        ecr_api.log_in(ecr.client, other)
