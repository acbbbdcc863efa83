"""The Dockerfiles: pinned, without root, with the developers' lock file; steps that need no container are run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.lifecycle.image.plan import IMAGES, RECIPES, VARIANTS, ImageName, Source, Torch, plan
from infra.spec.release_rules import ROOT
from infra.spec.settings.stores import StorageSettings
from tests.engines.report_table import ran, skipped
from tests.infra.lifecycle.image.dockerfile import Dockerfile, environment, read
from tests.infra.lifecycle.image.samples import release

FINAL = {"trainer": ("cpu", "cuda"), "mlflow": ("mlflow",)}
STAGES = [(image, stage) for image in IMAGES for stage in FINAL[image]]


def dockerfile(image: ImageName) -> Dockerfile:
    """An image's Dockerfile."""
    return read(ROOT / RECIPES[image].dockerfile)


def context(image: ImageName, folder: Path) -> Path:
    """A folder with the files that a build copies from the repository."""
    for source in dockerfile(image).sources():
        target = folder / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            unwanted = shutil.ignore_patterns("__pycache__", "cluster", "Dockerfile")
            shutil.copytree(ROOT / source, target, dirs_exist_ok=True, ignore=unwanted)
        else:
            shutil.copy(ROOT / source, target)
    return folder


@pytest.mark.parametrize("image", IMAGES)
def test_hadolint_reports_nothing(image: ImageName) -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if hadolint is None:
        skipped("hadolint", "no hadolint on PATH or in .venv", "make env FOR=dev")
    answer = subprocess.run(
        [hadolint, str(ROOT / RECIPES[image].dockerfile)], check=False, capture_output=True, text=True
    )
    ran("hadolint")
    assert answer.stdout == ""
    assert answer.returncode == 0


@pytest.mark.parametrize("image", IMAGES)
def test_every_stage_starts_from_the_pinned_base_or_an_earlier_stage(image: ImageName) -> None:
    stages = dockerfile(image).stages
    assert dockerfile(image).arguments == ("PYTHON_IMAGE",)
    assert {stage.base for stage in stages.values()} <= {"${PYTHON_IMAGE}", *stages}


@pytest.mark.parametrize(("image", "stage"), STAGES)
def test_an_image_runs_as_the_owner_of_the_file_system(image: ImageName, stage: str) -> None:
    uid = StorageSettings.model_fields["efs_uid"].default
    last = next(stage.values("USER")[-1] for stage in dockerfile(image).lineage(stage))
    assert last == f"{uid}:{uid}"


@pytest.mark.parametrize(("image", "stage"), STAGES)
def test_no_package_installer_is_left(image: ImageName, stage: str) -> None:
    final = dockerfile(image).stages[stage] if image == "mlflow" else dockerfile(image).stages["cpu"]
    steps = [*dockerfile(image).stages["environment"].values("RUN"), *final.values("RUN")]
    assert sum("pip uninstall" in step and step.rstrip().endswith("pip") for step in steps) == 2
    assert not [step for step in steps if "apt-get install" in step]


def test_the_trainer_image_installs_with_the_developers_script_and_lock() -> None:
    stage = dockerfile("trainer").stages["environment"]
    copied = {source for value in stage.values("COPY") for source in value.split()[:-1]}
    assert copied == {".make/environment", "requirements.lock", "requirements-bootstrap.lock"}
    [step] = stage.values("RUN")
    assert ".make/environment train " in step


@pytest.mark.parametrize("image", IMAGES)
def test_packages_are_installed_by_hash_only(image: ImageName) -> None:
    script = (ROOT / ".make/environment").read_text(encoding="utf-8")
    [step] = dockerfile(image).stages["environment"].values("RUN")
    installing = script if image == "trainer" else step
    assert installing.count("--require-hashes") == 2
    assert "pip sync --require-hashes --compile-bytecode" in installing


@pytest.mark.parametrize("image", IMAGES)
def test_the_copied_files_are_those_of_the_recipe(image: ImageName) -> None:
    recipe = RECIPES[image]
    files = {recipe.lock, *recipe.context} - {".dockerignore"}
    assert {source for source in dockerfile(image).sources() if source != "training/image/install-efa"} == files


@pytest.mark.parametrize("image", IMAGES)
def test_every_declared_argument_is_passed_and_no_other(image: ImageName) -> None:
    stages = dockerfile(image).stages.values()
    declared = {value.partition("=")[0] for stage in stages for value in stage.values("ARG")} | {"PYTHON_IMAGE"}
    source = Source(ROOT, "0" * 40, 0, ())
    torch = {"cpu": Torch("2.15.0+cpu", ""), "cuda": None}
    passed = {
        name
        for variant in VARIANTS
        for name in plan(image, release(), source, variant=variant, torch=torch[variant]).arguments
    }
    assert passed == declared


def test_dockerignore_keeps_the_build_context() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    for image in IMAGES:
        for source in dockerfile(image).sources():
            assert any(source == one or source.startswith(f"{one}/") for one in allowed), source


def test_the_cuda_variant_leaves_gpu_visibility_to_the_device_plugin() -> None:
    variables = environment([value for stage in dockerfile("trainer").lineage("cuda") for value in stage.values("ENV")])
    assert "NVIDIA_VISIBLE_DEVICES" not in variables
    assert variables["LD_LIBRARY_PATH"].split(":") == ["/opt/amazon/ofi-nccl/lib", "/opt/amazon/efa/lib"]


@pytest.mark.parametrize(
    ("image", "command"),
    [("trainer", ["-m", "training", "train", "--help"]), ("mlflow", ["-m", "mlflow_server", "--help"])],
)
def test_the_program_runs_from_the_copied_files_alone(image: ImageName, command: list[str], tmp_path: Path) -> None:
    folder = context(image, tmp_path / "context")
    if image == "mlflow":
        shutil.move(folder / "platform_charts/images/mlflow_server", folder / "mlflow_server")
    [compiling] = dockerfile(image).stages["code"].values("RUN")
    step = ["sh", "-c", compiling.replace("python3", sys.executable)]
    subprocess.run(step, cwd=folder, check=True, capture_output=True)
    bare = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(folder),
        "HOME": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    answer = subprocess.run(
        [sys.executable, *command], check=False, cwd=tmp_path, env=bare, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    assert "usage:" in answer.stdout


def test_an_installer_with_a_wrong_hash_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    archive = tmp_path / "installer.tar.gz"
    archive.write_bytes(b"not what was checked")
    script, target = ROOT / "training/image/install-efa", tmp_path / "efa"
    answer = subprocess.run(
        [str(script), archive.as_uri(), "0" * 64, str(target)], check=False, capture_output=True, text=True
    )
    assert answer.returncode != 0
    assert "checksum did NOT match" in answer.stderr
    assert not target.exists()


def test_the_trainer_images_files_train(tmp_path: Path) -> None:
    code = context("trainer", tmp_path / "code")
    command = ["-m", "training", "train", "--launcher", "plain", "--num-workers", "1", "--epochs", "1", "--name", "one"]
    done = subprocess.run(
        [sys.executable, *command, "--set", f"run.directory={tmp_path / 'runs'}", "--set", "tracking.enabled=false"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(code)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "runs" / "one" / "checkpoints").iterdir())
