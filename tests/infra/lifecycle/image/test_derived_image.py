"""`image --from`: real wheels, the real uv and Dockerfile; AWS is moto, and where no engine runs, the engine is a script."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement

from infra.lifecycle.commands import derived_image as command
from infra.lifecycle.image import engines
from infra.lifecycle.image.derive import derive
from infra.lifecycle.image.plan import EngineBuild
from infra.lifecycle.image.recipes import RECIPES, SESSION_LOCK
from infra.lifecycle.options import ImageOptions
from infra.packages.derived import BASE_ANNOTATION, PACKAGES_ANNOTATION, shortcomings
from infra.packages.overlay import THIS_PYTHON, Overlay, overlay
from infra.packages.requirements import read_requirements
from infra.spec.errors import PlatformError, RefusedError, SettingsError
from infra.spec.release import ReleaseManifest
from infra.spec.release_rules import ROOT
from tests.engines.image_builder import ImageBuilder, image_builder
from tests.infra.lifecycle.image.accounts import Account, allow_moto, put_image
from tests.infra.lifecycle.image.samples import fake_engine, release
from tests.infra.packages.test_overlay import PLATFORM
from tests.infra.packages.wheels import use_only, wheel

pytestmark = pytest.mark.extended

SESSION = f"sha256:{'5' * 64}"
"""Digest of a session's image, which the registry lacks."""


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    """An account of dev whose trainer repository has the release's image."""
    with allow_moto(monkeypatch):
        account = Account("dev")
        account.create("trainer")
        use_base(monkeypatch, put_image(account.ecr, "rtp-dev/trainer", "0.1.0-cuda-0123"))
        yield account


def use_base(monkeypatch: pytest.MonkeyPatch, digest: str | None) -> None:
    """Have the command see a release whose trainer image has this digest."""
    monkeypatch.setattr(command, "load_release", lambda: pushed(digest))


def pushed(digest: str | None) -> ReleaseManifest:
    found = release()
    trainer = found.images["trainer"].model_copy(update={"digest": digest})
    session = found.images["session"].model_copy(update={"digest": digest and SESSION})
    return found.model_copy(update={"images": {**found.images, "trainer": trainer, "session": session}})


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(command, "ROOT", tmp_path)
    for lock in (RECIPES["session"].lock, SESSION_LOCK):
        shutil.copy(ROOT / lock, tmp_path)
    return fake_engine(tmp_path, monkeypatch)


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A code folder that requires `greeter`; uv finds it in the folder `wheels` beside it."""
    use_only(tmp_path / "wheels", monkeypatch)
    wheel(tmp_path / "wheels", "greeter", "1.0")
    (tmp_path / "code").mkdir()
    (tmp_path / "code/requirements.txt").write_text("greeter\nnumpy>=2\n")
    return tmp_path / "code"


def run(code: Path, **options: object) -> int:
    return command.derived_image(ImageOptions(from_=code, **{"env": "dev", **options}))  # type: ignore[arg-type]


def test_the_image_is_built_once(account: Account, calls: Path, code: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PlatformError, match="the registry does not have it"):  # the script pushes nothing
        run(code)
    words = [line.split() for line in calls.read_text().splitlines()]
    assert [line[0] for line in words] == ["info", "login", "build", "push"]
    repository = "123456789012.dkr.ecr.us-east-1.amazonaws.com/rtp-dev/trainer"
    [base] = [one["imageDigest"] for one in account.ecr.list_images(repositoryName="rtp-dev/trainer")["imageIds"]]
    annotations = f"{BASE_ANNOTATION}={base}", f"{PACKAGES_ANNOTATION}=greeter==1.0"
    assert {f"TRAINER_IMAGE={repository}@{base}", *annotations} <= {*words[2]}
    assert words[3][1].startswith(f"{repository}:custom-")
    [file] = (calls.parent / ".local/sbom").iterdir()
    bom = json.loads(file.read_text())
    assert [one["name"] for one in bom["components"]] == [f"{repository}@{base}", "greeter"]
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(file.read_text()) is None
    digest = put_image(account.ecr, "rtp-dev/trainer", words[3][1].rpartition(":")[2])
    calls.unlink()
    assert run(code) == 0
    assert calls.read_text() == "info\n"
    assert capsys.readouterr().out.splitlines()[-1] == f"IMAGE={repository}@{digest}"


def test_what_the_trainer_has_needs_no_image(calls: Path, code: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code / "requirements.txt").write_text("numpy>=2\n")
    assert run(code) == 0
    assert "needs nothing that the trainer image lacks" in capsys.readouterr().out
    (code / "requirements.txt").write_text("numpy<2\n")
    with pytest.raises(SettingsError, match="numpy<2: the platform has"):
        run(code)
    assert not calls.exists()


@pytest.mark.usefixtures("account")
def test_without_a_trainer_image_it_is_refused(calls: Path, code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for digest, reason in ((None, "digest unresolved"), (f"sha256:{'9' * 64}", "not in the registry")):
        use_base(monkeypatch, digest)
        said = rf"no trainer image to derive from: {reason}\n.*make image PUSH=1"
        with pytest.raises(RefusedError, match=said) as refused:
            run(code)
        assert "ENV=dev" in refused.value.remedy


@pytest.mark.usefixtures("account")
def test_an_image_for_a_session_is_derived_from_that_of_sessions(
    calls: Path, code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = r"no session image to derive from: not in the registry\n.*make image PUSH=1 IMAGE=session ENV=dev"
    with pytest.raises(RefusedError, match=said):
        run(code, image="session")
    (code / "requirements.txt").write_text("jupyterlab\n")
    assert run(code, image="session") == 0
    assert "needs nothing that the session image lacks" in capsys.readouterr().out


def test_what_makes_no_sense_is_refused(calls: Path, code: Path) -> None:
    with pytest.raises(SettingsError, match="needs the environment"):
        run(code, env=None)
    with pytest.raises(SettingsError, match="images of the trainer and of sessions only"):
        run(code, image="mlflow")
    with pytest.raises(SettingsError, match="no such folder"):
        run(code / "none")


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageBuilder]:
    """A real engine, with an image that is laid out like the trainer's."""
    folder = tmp_path_factory.mktemp("trainer")
    with image_builder(tmp_path_factory.mktemp("builder")) as found:
        (folder / "Dockerfile").write_text(
            f"FROM {found.base}\nRUN python3 -m venv --without-pip /opt/ray-train-platform/.venv\n"
            "ENV PATH=/opt/ray-train-platform/.venv/bin:/bin PYTHONDONTWRITEBYTECODE=1\nUSER 1000:1000\n"
        )
        found.run("build", "--quiet", "--tag", "localhost/trainer", str(folder))
        yield found


def installed(code: Path) -> Overlay:
    """The packages of a code folder, for this Python, which is that of the test's base image."""
    return overlay(read_requirements(code), PLATFORM, THIS_PYTHON, root=code.with_name("overlays"), say=print)


def build_of(found: Overlay, account: Account) -> EngineBuild:
    """The build of an image with some packages, on the test's base image."""
    base = pushed(f"sha256:{'1' * 64}")
    build = derive(found, base, f"{account.registry.host}/{account.registry.name(base.images['trainer'])}")
    local = {"TRAINER_IMAGE": "localhost/trainer", "PYTHON": f"{sys.version_info.major}.{sys.version_info.minor}"}
    return replace(build, arguments={**build.arguments, **local})


def test_an_image_imports_its_packages(account: Account, code: Path, builder: ImageBuilder, tmp_path: Path) -> None:
    (code / "requirements.txt").write_text("greeter\n")
    digests, layers = [], []
    for number in range(2):
        found = installed(code)
        for path in found.packages.rglob("*"):
            os.utime(path, (0, 1000 * number))
        words = engines.Buildah().build(build_of(found, account), f"localhost/d:{number}")
        builder.run(*[word for word in words[1:] if word != "--layers"])
        digests.append(builder.export(f"localhost/d:{number}", tmp_path / str(number)))
        blobs = tmp_path / str(number) / "blobs/sha256"
        manifest = json.loads((blobs / digests[-1].removeprefix("sha256:")).read_text())
        layers.append(len(manifest["layers"]))
    assert digests[0] == digests[1]
    recorded = manifest["annotations"]
    assert (recorded[PACKAGES_ANNOTATION], recorded[BASE_ANNOTATION]) == ("greeter==1.0", f"sha256:{'1' * 64}")
    assert list(shortcomings(recorded, [Requirement("greeter>=1")], pushed(f"sha256:{'1' * 64}"))) == []
    config = json.loads((blobs / manifest["config"]["digest"].removeprefix("sha256:")).read_text())
    assert config["config"]["User"] == "1000:1000"
    assert config["config"]["Labels"]["ray-train-platform.packages"] == "greeter==1.0"
    base = builder.export("localhost/trainer", tmp_path / "base").removeprefix("sha256:")
    assert layers[0] == len(json.loads((tmp_path / "base/blobs/sha256" / base).read_text())["layers"]) + 1
    container = builder.run("from", "localhost/d:0").strip()
    program = (
        "import greeter, importlib.metadata as m; print(greeter.VERSION, m.version('greeter'), greeter.__cached__)"
    )
    said = builder.run("run", "--env", "PYTHONPATH=/mnt/code", container, "python3", "-c", program).split()
    assert said[:2] == ["1.0", "1.0"]
    assert builder.run("run", container, "python3", "-c", f"print(open({said[2]!r}, 'rb').read(8)[4])").strip() == "1"
