"""Looking an image up in its registry, and whether it has the packages of a job's code; ECR is moto, a sandbox's registry is real."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from infra.lifecycle.image.plain_registry import PlainRegistry
from infra.packages.derived import manifest_annotations
from infra.packages.lock import Package
from infra.spec.errors import NoAnswerError, RefusedError, SettingsError
from infra.spec.manifest import Manifest
from infra.spec.release import load_release
from platform_charts.jobs.rayjob import render_job
from tests.engines.oci_registry import push_image
from tests.engines.ports import free_port
from tests.engines.sandbox_registry import sandbox_registry
from tests.platform_charts.jobs.targets import job
from tests.training.cluster.team_cluster import context_on, target
from training.cluster.code_packages import check_derived, require_image
from training.cluster.context import ClusterContext
from training.cluster.job_manifest import image_of
from training.cluster.registry import check_image, check_images, read_annotations
from training.code.archive import pack

BASE = f"sha256:{'1' * 64}"
REGISTRY = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
TRAINER = f"{REGISTRY}/rtp-dev/trainer"
IMAGE = f"{TRAINER}@sha256:{'d' * 64}"


@pytest.fixture
def context() -> ClusterContext:
    """A stack in moto's account, whose release has a pushed trainer image."""
    stack = target(is_recorded=False, registries={"trainer": TRAINER, "mlflow": "m"})
    trainer = stack.release.images["trainer"].model_copy(update={"digest": BASE})
    release = stack.release.model_copy(update={"images": {**stack.release.images, "trainer": trainer}})
    return context_on(replace(stack, release=release))


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A code folder that requires a package of the platform and one more."""
    (tmp_path / "requirements.txt").write_text("numpy>=2\ntimm>=1\n")
    (tmp_path / "model.py").write_text("")
    return tmp_path


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """ECR with the trainer's repository; gives the client."""
    import boto3  # noqa: PLC0415 - slow, and few tests need it

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        ecr = boto3.client("ecr", region_name="us-east-1")
        ecr.create_repository(repositoryName="rtp-dev/trainer")
        yield ecr


def push(ecr: Any, context: ClusterContext, *packages: str, base: str = BASE) -> Manifest:  # noqa: ANN401 - boto3's
    """Push a derived image with some packages, as name==version; gives a job that runs in it."""
    pairs = (one.partition("==") for one in packages)
    added = [Package(name, version, ()) for name, _, version in pairs]
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {},
        "layers": [],
        "annotations": manifest_annotations(added, base=base),
    }
    put = ecr.put_image(repositoryName="rtp-dev/trainer", imageTag="custom-0", imageManifest=json.dumps(manifest))
    return job_with(f"{TRAINER}@{put['image']['imageId']['imageDigest']}", context)


def job_with(image: str, context: ClusterContext) -> Manifest:
    _, ray_job = render_job(job(image=image, workers=1, gpus_per_worker=0), context.target)
    return ray_job


def test_code_needs_an_image_if_that_of_the_release_lacks_packages(
    code: Path, tmp_path: Path, context: ClusterContext
) -> None:
    require_image(None, context, image=None)
    for requirements in ("numpy>=2\nray[train]\n", "timm; sys_platform == 'darwin'\n"):
        (code / "requirements.txt").write_text(requirements)
        require_image(code, context, image=None)
    (code / "requirements.txt").write_text("timm>=1; sys_platform == 'linux'\n")
    archive = tmp_path / "0123456789abcdef.tar.gz"
    archive.write_bytes(pack(code).data)
    with pytest.raises(RefusedError, match=r"\n  timm>=1"):
        require_image(archive, context, image=None)
    with pytest.raises(RefusedError, match=r"\n  timm>=1") as refused:
        require_image(code, context, image=None)
    assert f"make image FROM={code} ENV=dev" in refused.value.remedy
    (code / "requirements.txt").write_text("torch<2\n")
    with pytest.raises(SettingsError, match=r"torch<2: the platform has 2\."):
        require_image(code, context, image=IMAGE)


def test_modules_that_are_compiled_for_another_python_only_are_named(
    code: Path, tmp_path: Path, context: ClusterContext, capsys: pytest.CaptureFixture[str]
) -> None:
    (code / "requirements.txt").unlink()
    linux = "x86_64-linux-gnu.so"
    for name in (f"new.cpython-313-{linux}", f"both.cpython-311-{linux}", f"both.cpython-313-{linux}", "any.abi3.so"):
        (code / name).write_bytes(b"")
    archive = tmp_path / "0123456789abcdef.tar.gz"
    archive.write_bytes(pack(code).data)
    for given in (code, archive):
        require_image(given, context, image=None)
        [warned] = capsys.readouterr().err.splitlines()
        assert warned.startswith(f"warning: new of {given} is compiled for Python 3.13, and the trainer image has 3.11")
    require_image(code, context, image=IMAGE)
    assert capsys.readouterr().err == ""


def test_an_image_with_the_packages_and_that_of_the_release_are_accepted(
    repository: Any,  # noqa: ANN401
    code: Path,
    context: ClusterContext,
) -> None:
    check_derived(push(repository, context, "timm==1.0.1"), code, context)
    check_derived(job_with(f"{TRAINER}@{BASE}", context), None, context)
    with pytest.raises(RefusedError, match="is not in the registry"):
        check_derived(job_with(IMAGE, context), code, context)


@pytest.mark.parametrize(
    ("packages", "base", "said"),
    [
        (["timm==0.9"], BASE, r"does not fit the job:\n  timm>=1: has 0\.9\n"),
        ([], f"sha256:{'2' * 64}", "(?s)it was derived from sha256:2222.*make image FROM=folder ENV=dev"),
    ],
)
def test_an_image_without_a_package_or_of_another_release_is_refused(
    repository: Any,  # noqa: ANN401
    packages: list[str],
    base: str,
    said: str,
    code: Path,
    context: ClusterContext,
) -> None:
    job_ = push(repository, context, *packages, base=base)
    with pytest.raises(RefusedError, match=said):
        check_derived(job_, code if packages else None, context)


def test_a_registry_that_cannot_be_read_is_a_warning(
    code: Path, context: ClusterContext, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    check_derived(job_with(IMAGE, context), code, context)
    assert "warning: what image" in capsys.readouterr().err


MISSING = r"is not in the registry .*\n.*make image PUSH=1"


def test_an_image_is_looked_up_by_tag_and_digest(repository: Any, context: ClusterContext) -> None:  # noqa: ANN401
    pushed = image_of(push(repository, context))
    for image in (pushed, f"{TRAINER}:custom-0"):
        assert check_image(image) == ""
    for image in (f"{TRAINER}@sha256:{'0' * 64}", f"{TRAINER}:9.9.9", f"{REGISTRY}/another:custom-0"):
        with pytest.raises(RefusedError, match=MISSING):
            check_image(image)
    assert check_image("localhost:5000/trainer:0.1.0") == "localhost:5000/trainer:0.1.0 is not in ECR"


def test_an_image_that_was_never_pushed_is_refused_unless_the_stack_is_recorded_only() -> None:
    image = f"{REGISTRY}/trainer:not-pushed"
    check_images(target().outputs, image)
    with pytest.raises(RefusedError, match=r"no digest of image \S+/trainer: it was never pushed\n.*make image PUSH=1"):
        check_images(target(is_recorded=False).outputs, image)


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
    gone = f"127.0.0.1:{free_port()}"
    assert check_image(f"{gone}/rtp-dev/trainer:a") == f"registry {gone}: [Errno 111] Connection refused"
    with pytest.raises(NoAnswerError, match="refused"):
        read_annotations(f"{gone}/rtp-dev/trainer:a")
