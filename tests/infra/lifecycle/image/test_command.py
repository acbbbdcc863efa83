"""`image`, and which images a registry lacks, against moto's ECR, with an engine that builds nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from infra.lifecycle.commands import image as command
from infra.lifecycle.image import ecr, plan
from infra.lifecycle.image.availability import MissingImage, missing_images
from infra.lifecycle.image.ecr import EnvironmentRegistry
from infra.lifecycle.image.recipes import IMAGES, ImageName
from infra.lifecycle.image.source import read_source
from infra.lifecycle.options import ImageOptions
from infra.spec.errors import PlatformError, RefusedError, SettingsError
from infra.spec.release import RELEASE_FILE, ReleaseManifest, load_release
from infra.spec.settings import load_environment
from tests.infra.lifecycle.image.accounts import Account, allow_moto, put_image
from tests.infra.lifecycle.image.samples import checkout, commit, fake_engine, release


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """An account of dev with the repositories that `up` makes first, and nothing else: the stack has no outputs."""
    with allow_moto(monkeypatch):
        account = Account("dev")
        account.create("mlflow")
        monkeypatch.setattr(command, "_show_layers", lambda *_: None)  # moto has no registry API
        yield account


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """File with the arguments of the engine's calls; the file beside it has their standard input."""
    return fake_engine(tmp_path, monkeypatch)


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the release manifest and a checkout of MLflow's image, used by the command."""
    file = Path(shutil.copy(RELEASE_FILE, tmp_path))
    monkeypatch.setattr(command, "RELEASE_FILE", file)
    monkeypatch.setattr(command, "ROOT", checkout(tmp_path / "checkout", "mlflow"))
    monkeypatch.setattr(command, "load_release", release)
    return file


def run(*, push: bool = False, image: ImageName | None = "mlflow", **options: Any) -> int:  # noqa: ANN401
    return command.image(ImageOptions(image=image, push=push, **options))


def test_a_local_image_has_its_name_and_sbom(calls: Path, manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    tag = plan.plan("mlflow", release(), read_source(manifest.parent / "checkout", "mlflow")).tag
    assert f"--tag ray-train-platform/mlflow:{tag} " in calls.read_text()
    assert [path.suffixes[-2:] for path in (manifest.parent / "checkout/.local/sbom").iterdir()] == [[".cdx", ".json"]]
    assert "1 packages" in capsys.readouterr().out


def test_pushed_content_is_not_built_again_at_another_commit(account: Account, calls: Path, manifest: Path) -> None:
    folder = manifest.parent / "checkout"
    tag = plan.plan("mlflow", release(), read_source(folder, "mlflow")).tag
    digest = put_image(account.ecr, "rtp-dev/mlflow", tag)
    commit(folder)
    assert run(push=True, env="dev") == 0
    image = load_release(manifest).images["mlflow"]
    assert (image.tag, image.digest) == (tag, digest)
    assert calls.read_text() == "info\n"


def test_a_push_needs_repositories_and_no_outputs(account: Account, calls: Path, manifest: Path) -> None:
    with pytest.raises(PlatformError, match="the registry does not have it"):
        run(push=True, env="dev")
    words = [line.split() for line in calls.read_text().splitlines()]
    assert [line[0] for line in words] == ["info", "login", "inspect", "build", "push"]
    tag = plan.plan("mlflow", release(), read_source(manifest.parent / "checkout", "mlflow")).tag
    assert words[-1][1] == f"123456789012.dkr.ecr.us-east-1.amazonaws.com/rtp-dev/mlflow:{tag}"
    password = calls.with_name("calls.password").read_text()
    assert password
    assert password not in calls.read_text()
    assert load_release(manifest).images["mlflow"].digest is None


def test_a_push_is_refused_without_repository_environment_digest_of_the_base_or_commit(
    account: Account, calls: Path, manifest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.ecr.delete_repository(repositoryName="rtp-dev/mlflow")
    with pytest.raises(RefusedError, match=r"no repository rtp-dev/mlflow\n  remedy: create it: make up ENV=dev"):
        run(push=True, env="dev")
    calls.unlink(missing_ok=True)
    with pytest.raises(SettingsError, match="the environment whose registry"):
        run(push=True)
    with monkeypatch.context() as patch:
        patch.setattr(command, "load_release", load_release)
        with pytest.raises(RefusedError, match=r"images\.python-base\.digest"):
            run(push=True, env="dev")
    (manifest.parent / "checkout/platform_charts/images/mlflow_server/module.py").write_text("changed\n")
    with pytest.raises(RefusedError, match="not pushed"):
        run(push=True, env="dev")
    assert not calls.exists()


ABSENT = f"sha256:{'d' * 64}"


@pytest.fixture
def empty(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    with allow_moto(monkeypatch):
        yield Account("dev")


def release_with(digests: Mapping[str, str]) -> ReleaseManifest:
    release = load_release()
    images = {name: release.images[name].model_copy(update={"digest": digest}) for name, digest in digests.items()}
    return release.model_copy(update={"images": {**release.images, **images}})


def missing(empty: Account, **digests: str) -> tuple[MissingImage, ...]:
    return missing_images(empty.ecr, empty.registry, release_with(digests))


def test_an_empty_account_lacks_the_repositories_then_the_digests_then_the_images(empty: Account) -> None:
    nowhere = tuple(MissingImage(name, "repository missing") for name in IMAGES)
    assert missing(empty) == missing(empty, trainer=ABSENT, mlflow=ABSENT) == nowhere
    empty.create("trainer", "mlflow")
    assert missing(empty) == tuple(MissingImage(name, "digest unresolved") for name in IMAGES)
    pushed = {
        "mlflow": put_image(empty.ecr, "rtp-dev/mlflow", "0.1.0-0123456789ab"),
        "session": put_image(empty.ecr, "rtp-dev/trainer", "0.1.0-session-cuda-0123456789ab"),
        "trainer": ABSENT,
    }
    assert missing(empty, **pushed) == (MissingImage("trainer", "not in the registry"),)
    pushed["trainer"] = put_image(empty.ecr, "rtp-dev/trainer", "0.1.0-cuda-0123456789ab")
    assert missing(empty, **pushed) == ()
    assert EnvironmentRegistry.open("dev").digest(load_release().images["mlflow"], "0.1.0-x") is None


def test_another_error_of_aws_is_not_an_answer(empty: Account) -> None:
    with Stubber(empty.ecr) as stubbed:
        stubbed.add_client_error("describe_images", "AccessDeniedException")
        with pytest.raises(ClientError, match="AccessDenied"):
            missing(empty, trainer=ABSENT, mlflow=ABSENT)


def test_the_registry_follows_from_account_region_and_name(empty: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = EnvironmentRegistry.open("dev")
    assert ours.registry == empty.registry
    assert ours.registry.host == "123456789012.dkr.ecr.us-east-1.amazonaws.com"
    assert ours.registry.prefix == f"{ours.registry.host}/rtp-dev"
    assert ours.registry.name(load_release().images["trainer"]) == "rtp-dev/trainer"
    other = EnvironmentRegistry("dev", ours.registry._replace(account="999999999999"), ours.client)
    with pytest.raises(RefusedError, match=r"that of dev is 999999999999\.dkr\.ecr"):
        other.log_in()
    with pytest.raises(RefusedError, match=r"prod: The config profile \(absent\) could not be found"):
        EnvironmentRegistry.open("prod", profile="absent")
    monkeypatch.setattr(ecr, "load_environment", load_environment)
    with pytest.raises(RefusedError, match="AWS account 123456789012 may not hold environment prod"):
        EnvironmentRegistry.open("prod")
