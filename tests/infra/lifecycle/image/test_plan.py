"""The build plan: content, arguments, refusals before a build, and the SBOM: complete, valid and reproducible."""

from __future__ import annotations

import hashlib
import json
import re
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.utils import canonicalize_name

from infra.lifecycle.image import sbom
from infra.lifecycle.image.plan import Build, Torch, plan, torch_choice
from infra.lifecycle.image.recipes import IMAGES, RECIPES, SESSION_LOCK, ImageName, Variant
from infra.lifecycle.image.source import IgnoreRules, Source, read_source, require_committed
from infra.packages.derived import linux_markers
from infra.packages.lock import read_lock
from infra.spec.errors import PlatformError, RefusedError, SettingsError
from infra.spec.release import ReleaseManifest, load_release
from infra.spec.release_rules import ROOT
from tests.infra.lifecycle.image.dockerfile import read
from tests.infra.lifecycle.image.samples import BASE_DIGEST, EFA_SHA256, RDS_SHA256, checkout, commit, git, release


@pytest.fixture
def trainer(tmp_path: Path) -> Source:
    return read_source(checkout(tmp_path / "trainer", "trainer"), "trainer")


@pytest.fixture
def mlflow(tmp_path: Path) -> Source:
    return read_source(checkout(tmp_path / "mlflow", "mlflow"), "mlflow")


def cpu(
    source: Source, version: str = "2.15.0+cpu", *, index: str = "", pinned: ReleaseManifest | None = None
) -> Build:
    return plan("trainer", pinned or release(), source, variant="cpu", torch=Torch(version, index))


def test_tag_base_and_record_name_the_inputs(trainer: Source, mlflow: Source) -> None:
    build, server = plan("trainer", release(), trainer), plan("mlflow", release(), mlflow)
    assert re.fullmatch(rf"{release().platform}-cuda-[0-9a-f]{{12}}", build.tag)
    assert re.fullmatch(rf"{release().platform}-[0-9a-f]{{12}}", server.tag)
    for one in (build, server):
        assert one.arguments["PYTHON_IMAGE"] == f"docker.io/library/python@{BASE_DIGEST}"
    record = json.loads(build.arguments["BUILD"])
    assert record["variant"] == "cuda"
    assert record["torch"] == release().stack.torch
    assert record["efa-installer-sha256"] == EFA_SHA256
    assert record["lock-sha256"] == hashlib.sha256((trainer.root / "requirements-image.lock").read_bytes()).hexdigest()
    assert build.is_released, "the release pins the variant for CUDA"
    assert not plan("trainer", release(), trainer, variant="cpu").is_released


@pytest.mark.parametrize("image", IMAGES)
def test_the_same_content_at_another_commit_is_the_same_build(image: ImageName, tmp_path: Path) -> None:
    folder = checkout(tmp_path, image)
    before = read_source(folder, image)
    (folder / "README.md").write_text("outside the context\n")
    commit(folder)
    after = read_source(folder, image)
    assert after.revision != before.revision
    first, second = plan(image, release(), before), plan(image, release(), after)
    assert (first.tag, first.arguments) == (second.tag, second.arguments)
    assert before.revision not in str(first.arguments)


def test_changed_content_is_another_build(trainer: Source) -> None:
    tags = [plan("trainer", release(), trainer).tag]
    files = (
        "training/module.py",
        "requirements-image.lock",
        "training/image/Dockerfile",
        "pyproject.toml",
        "tune/new.py",
    )
    for name in files:
        with (trainer.root / name).open("a") as file:
            file.write("changed\n")
        tags.append(plan("trainer", release(), read_source(trainer.root, "trainer")).tag)
    assert len(set(tags)) == len(tags)


def test_another_variant_torch_installer_or_base_is_another_build(trainer: Source) -> None:
    base = release()
    moved = base.images["python-base"].model_copy(update={"digest": f"sha256:{'c' * 64}"})
    builds = [
        plan("trainer", base, trainer),
        plan("trainer", release(efa_sha256="f" * 64), trainer),
        plan("trainer", base.model_copy(update={"images": {**base.images, "python-base": moved}}), trainer),
        cpu(trainer),
        cpu(trainer, "2.14.0+cpu"),
    ]
    assert len({build.tag for build in builds}) == len(builds)


def test_the_address_of_an_index_is_neither_part_of_the_identity_nor_recorded(trainer: Source) -> None:
    elsewhere = cpu(trainer, index="https://user:secret@index.example/simple")
    assert elsewhere.tag == cpu(trainer).tag
    assert "secret" not in elsewhere.arguments["BUILD"]


def test_without_the_hash_of_a_download_an_image_that_needs_it_is_refused(trainer: Source, mlflow: Source) -> None:
    with pytest.raises(RefusedError, match=r"downloads\.efa-installer\.sha256") as refused:
        plan("trainer", release(efa_sha256=None), trainer)
    assert "check its signature" in refused.value.remedy
    build = cpu(trainer, pinned=release(efa_sha256=None))
    assert (build.target, build.arguments["TORCH_VERSION"]) == ("cpu", "2.15.0+cpu")
    assert not [name for name in build.arguments if name.startswith("EFA")]
    assert plan("mlflow", release(), mlflow).arguments["RDS_CERTIFICATES_SHA256"] == RDS_SHA256
    with pytest.raises(RefusedError, match=r"downloads\.rds-certificates\.sha256"):
        plan("mlflow", release(rds_sha256=None), mlflow)


def test_a_torch_build_that_does_not_match_the_variant_is_refused() -> None:
    wrong: tuple[tuple[Variant, dict[str, str]], ...] = (
        ("cpu", {}),
        ("cuda", {"TORCH_VERSION": "2.15.0+cpu"}),
        ("cpu", {"TORCH_INDEX": "x"}),
    )
    for variant, variables in wrong:
        with pytest.raises(SettingsError, match="TORCH_VERSION"):
            torch_choice(variant, variables)
    assert torch_choice("cuda", {}) is None
    assert torch_choice("cpu", {"TORCH_VERSION": "1", "TORCH_INDEX": "x"}) == Torch("1", "x")


def test_the_mlflow_image_installs_the_stacks_mlflow() -> None:
    lock = (ROOT / RECIPES["mlflow"].lock).read_text(encoding="utf-8")
    assert f"\nmlflow=={load_release().stack.mlflow} \\\n" in lock


REMOVED: dict[ImageName, set[str]] = {"trainer": {"setuptools"}, "session": {"setuptools"}, "mlflow": set()}
"""Packages of the lock that are not in the image."""
CPU = Torch("2.15.0+cpu", "")


def build(
    image: ImageName, variant: Variant = "cuda", torch: Torch | None = None, *, revision: str = "a" * 40
) -> Build:
    return plan(image, release(), Source(ROOT, revision, "c" * 64, ()), variant=variant, torch=torch)


def components(build: Build) -> dict[str, dict[str, Any]]:
    """Components by name of an SBOM, which is valid CycloneDX."""
    document = sbom.document(build)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(document) is None
    return {one["name"]: one for one in json.loads(document)["components"]}


@pytest.mark.parametrize("image", IMAGES)
def test_every_package_of_the_lock_is_listed_with_its_hashes(image: ImageName) -> None:
    markers = linux_markers(release().stack.python)
    locked = [
        package
        for lock in (RECIPES[image].lock, *RECIPES[image].added_locks)
        for package in read_lock(ROOT / lock, markers)
        if package.name not in REMOVED[image]
    ]
    listed = components(build(image))
    assert {(one.name, listed[one.name]["version"]) for one in locked} == {(one.name, one.version) for one in locked}
    assert not (REMOVED[image] | {"pywin32"}) & set(listed)
    hashes = {one["content"] for component in listed.values() for one in component.get("hashes", [])}
    assert hashes - {EFA_SHA256} == {digest for one in locked for digest in one.hashes}


def test_the_variant_for_cpus_has_its_own_torch_and_that_for_cuda_base_image_and_installer() -> None:
    listed = components(build("trainer", "cpu", CPU))
    assert listed["torch"]["version"] == "2.15.0+cpu"
    assert not [name for name in listed if name.startswith("nvidia-cu") or name == "triton"]
    listed = components(build("trainer"))
    assert build("trainer").arguments["PYTHON_IMAGE"] in listed
    [installer] = [one for name, one in listed.items() if name.startswith("aws-efa-installer-")]
    assert [one["content"] for one in installer["hashes"]] == [EFA_SHA256]


def test_a_sessions_image_is_the_trainers_with_jupyterlab_in_one_more_layer() -> None:
    session, trainer = build("session"), build("trainer")
    assert re.fullmatch(rf"{release().platform}-session-cuda-[0-9a-f]{{12}}", session.tag)
    assert (session.target, build("session", "cpu", CPU).target) == ("session-cuda", "session-cpu")
    assert (session.runtime, session.is_released) == (trainer.runtime, True)
    stages = read(ROOT / RECIPES["session"].dockerfile).stages
    for variant in ("cpu", "cuda"):
        stage = stages[f"session-{variant}"]
        assert (stage.base, [one.keyword for one in stage.instructions]) == (variant, ["COPY"])
    theirs, more = components(trainer), components(session)
    assert theirs.items() <= more.items()
    assert {"jupyterlab", "jupyter-server", "ipykernel"} <= more.keys() - theirs.keys()
    assert not {one for one in theirs if "jupyter" in one} | theirs.keys() & {"mlflow", "flask", "ipython"}


def test_the_layer_of_a_session_replaces_no_file_of_the_trainers() -> None:
    def files(lock: str) -> set[str]:
        names = {one.name for one in read_lock(ROOT / lock)}
        installed = (one for one in distributions() if canonicalize_name(one.metadata["Name"]) in names)
        return {str(file) for one in installed for file in one.files or ()}

    added = files(SESSION_LOCK)
    assert any(name.startswith("jupyterlab/") for name in added)
    assert not added & files(RECIPES["trainer"].lock)


def test_another_torch_excludes_the_packages_that_the_environment_script_excludes() -> None:
    script = (ROOT / ".make/environment").read_text(encoding="utf-8")
    assert "keep = !/^(torch|triton)==|^(nvidia|cuda)-/" in script
    names = {"torch", "triton", "nvidia-nccl-cu13", "cuda-toolkit", "torchmetrics", "tritonclient"}
    assert {name for name in names if sbom._REPLACED.match(name)} == names - {"torchmetrics", "tritonclient"}


def test_the_same_build_has_the_same_sbom_which_names_the_commit_that_the_image_does_not_contain() -> None:
    one, other = build("mlflow"), build("mlflow", revision="b" * 40)
    assert sbom.document(one) == sbom.document(build("mlflow"))
    assert one.tag == other.tag
    documents = [json.loads(sbom.document(each)) for each in (one, other, build("trainer"))]
    assert len({document["serialNumber"] for document in documents}) == 3
    properties = documents[1]["metadata"]["component"]["properties"]
    assert {"name": "ray-train-platform:revision", "value": "b" * 40} in properties


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return checkout(tmp_path, "trainer")


def content(folder: Path) -> str:
    return read_source(folder, "trainer").content


def test_the_rules_of_the_repository() -> None:
    rules = IgnoreRules((ROOT / ".dockerignore").read_text(encoding="utf-8"))
    taken = {"training/loop.py", "training/image/install-efa", "infra/spec/errors.py", "requirements-image.lock"}
    left = {
        "training/cluster/commands.py",
        "training/__pycache__/loop.cpython-311.pyc",
        "training/README.md",
        "training/image/Dockerfile",
        "infra/spec/release.yaml",
        "requirements-dev.lock",
        "README.md",
        "trainings/x.py",
    }
    assert {path for path in taken | left if rules.takes(path)} == taken


def test_a_file_that_the_build_does_not_take_changes_nothing(folder: Path) -> None:
    before = content(folder)
    for name in ("README.md", "training/README.md", "training/cluster/x.py", "training/__pycache__/x.pyc"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("changed\n")
    source = read_source(folder, "trainer")
    assert (source.content, source.changed) == (before, ())
    require_committed(source, "trainer")


def test_the_executable_bit_and_the_name_of_a_file_count_and_no_other_permission(folder: Path) -> None:
    contents = [content(folder)]
    (folder / "training/module.py").chmod(0o600)
    assert content(folder) == contents[0]
    (folder / "training/module.py").chmod(0o755)
    contents.append(content(folder))
    (folder / "training/module.py").rename(folder / "training/renamed.py")
    contents.append(content(folder))
    (folder / "training/link.py").symlink_to("renamed.py")
    contents.append(content(folder))
    assert len(set(contents)) == 4


def test_a_changed_new_or_deleted_file_of_the_build_is_not_pushed(folder: Path) -> None:
    names = ("requirements-image.lock", "training/image/Dockerfile", "training/module.py", "tune/new.py")
    for count, name in enumerate(names, start=1):
        (folder / name).write_text("changed\n")
        source = read_source(folder, "trainer")
        assert source.changed == names[:count]
        assert source.recorded_revision.endswith("-dirty")
        with pytest.raises(RefusedError, match=name):
            require_committed(source, "trainer")
    commit(folder)
    (folder / "tune/module.py").unlink()
    assert read_source(folder, "trainer").changed == ("tune/module.py",)


def test_a_file_that_git_ignores_and_the_build_takes_is_not_pushed(folder: Path) -> None:
    before = content(folder)
    (folder / "training/logs").mkdir()
    (folder / "training/logs/run.log").write_text("taken by COPY\n")
    for rule in ("*.log\n", "logs/\n"):
        (folder / ".gitignore").write_text(rule)
        git(folder, "add", ".gitignore")
        git(folder, "commit", "--quiet", "--message", rule)
        source = read_source(folder, "trainer")
        assert source.changed == ("training/logs/run.log",)
        assert source.content != before


def test_a_folder_without_a_commit_is_refused(tmp_path: Path) -> None:
    checkout(tmp_path, "trainer")
    (tmp_path / ".git").rename(tmp_path / "no-git")
    with pytest.raises(PlatformError, match=r"git rev-parse"):
        read_source(tmp_path, "trainer")
