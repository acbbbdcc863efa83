"""The Dockerfiles: pinned, without root, with the developers' lock file; steps that need no container are run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.lifecycle.image.plan import EPOCH, Torch, plan
from infra.lifecycle.image.recipes import IMAGES, RECIPES, VARIANTS, ImageName
from infra.lifecycle.image.source import IgnoreRules, Source
from infra.spec.release import load_release
from infra.spec.release_rules import ROOT
from infra.spec.settings.stores import StorageSettings
from tests.distribution import RAY
from tests.engines.report_table import ran, skipped
from tests.infra.lifecycle.image.dockerfile import Dockerfile, environment, read
from tests.infra.lifecycle.image.samples import release
from training.code.selection import select

FINAL = {"trainer": ("cpu", "cuda"), "mlflow": ("mlflow",)}
TOOLS = {f"training/image/{name}" for name in ("install-efa", "remove_unused.py", "unused.txt")}
"""Files of the folder `training` that stages of the build take alone."""
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
    assert dockerfile(image).arguments == ("PYTHON_IMAGE", "RUNTIME_IMAGE=runtime")
    assert {stage.base for stage in stages.values()} <= {"${PYTHON_IMAGE}", "${RUNTIME_IMAGE}", *stages}


@pytest.mark.parametrize("image", IMAGES)
def test_the_stage_without_the_code_takes_the_files_that_identify_it(image: ImageName) -> None:
    stages, recipe = dockerfile(image).stages, RECIPES[image]
    copied = {
        source
        for name in ("environment", "runtime")
        for value in stages[name].values("COPY")
        if not value.startswith("--from=")
        for source in value.split()[:-1]
    }
    assert copied == {recipe.lock, *recipe.runtime}
    others = {value.split()[0] for value in stages["runtime"].values("COPY")}
    assert others == {"--from=environment"}


@pytest.mark.parametrize(("image", "stage"), STAGES)
def test_an_image_runs_as_the_owner_of_the_file_system(image: ImageName, stage: str) -> None:
    uid = StorageSettings.model_fields["efs_uid"].default
    last = next(stage.values("USER")[-1] for stage in dockerfile(image).lineage(stage))
    assert last == f"{uid}:{uid}"


@pytest.mark.parametrize(("image", "stage"), STAGES)
def test_no_package_installer_is_left(image: ImageName, stage: str) -> None:
    steps = [step for name in ("environment", "runtime") for step in dockerfile(image).stages[name].values("RUN")]
    assert not [step for step in dockerfile(image).stages[stage].values("RUN") if "pip" in step]
    commands = [command.strip() for step in steps for command in step.split("&&")]
    assert sum("pip uninstall" in command and command.endswith("pip") for command in commands) == 2
    assert not [step for step in steps if "apt-get install" in step]


def test_the_trainer_image_installs_with_the_developers_script_and_lock() -> None:
    stage = dockerfile("trainer").stages["environment"]
    copied = {source for value in stage.values("COPY") for source in value.split()[:-1]}
    locks = {RECIPES["trainer"].lock, RECIPES["trainer"].added_lock, "requirements-bootstrap.lock"}
    assert copied - TOOLS == {".make/environment", *locks}
    assert ".make/environment deepspeed " in stage.values("RUN")[0]


@pytest.mark.parametrize("image", IMAGES)
def test_packages_are_installed_by_hash_only(image: ImageName) -> None:
    script = (ROOT / ".make/environment").read_text(encoding="utf-8")
    installing = script if image == "trainer" else dockerfile(image).stages["environment"].values("RUN")[0]
    assert installing.count("--require-hashes") == (3 if image == "trainer" else 2)
    assert "pip sync --require-hashes " in installing


@pytest.mark.parametrize("image", IMAGES)
def test_the_copied_files_are_those_of_the_recipe(image: ImageName) -> None:
    recipe = RECIPES[image]
    files = {recipe.lock, *recipe.context} - {".dockerignore"}
    assert set(dockerfile(image).sources()) - TOOLS == files


@pytest.mark.parametrize("image", IMAGES)
def test_every_declared_argument_is_passed_and_no_other(image: ImageName) -> None:
    stages = dockerfile(image).stages.values()
    declared = {value.partition("=")[0] for stage in stages for value in stage.values("ARG")} | {"PYTHON_IMAGE"}
    source = Source(ROOT, "0" * 40, "0" * 64, ())
    torch = {"cpu": Torch("2.15.0+cpu", ""), "cuda": None}
    passed = {
        name
        for variant in VARIANTS
        for name in plan(image, release(), source, variant=variant, torch=torch[variant]).arguments
    }
    assert passed == declared


def test_layers_of_the_trainer_are_ordered_by_how_often_they_change() -> None:
    stages = dockerfile("trainer").stages
    sources = [value.split()[:2] for name in ("runtime", "cpu") for value in stages[name].values("COPY")]
    assert sources == [
        ["--from=environment", "/torch/.venv"],
        ["--from=environment", "/opt/ray-train-platform/.venv"],
        ["--from=code", "/opt/ray-train-platform"],
    ]


@pytest.mark.parametrize("image", IMAGES)
def test_no_bytecode_is_compared_with_the_time_of_its_source(image: ImageName) -> None:
    """The engine sets the time of every file, so bytecode that is checked by time would be compiled again in every process."""
    stages = dockerfile(image).stages
    for stage in (stages["environment"], stages["code"]):
        [compiling] = [step for step in stage.values("RUN") if "compileall" in step]
        assert "PYTHONHASHSEED=0" in compiling
        assert "--invalidation-mode unchecked-hash" in compiling
    [installing] = [step for step in stages["environment"].values("RUN") if "compileall" in step]
    assert installing.index("-name '*.pyc' -delete") < installing.index("compileall")
    for stage in (stages["environment"], stages[FINAL[image][0]]):
        assert "PYTHONDONTWRITEBYTECODE=1" in " ".join([*stage.values("ENV"), *stage.values("RUN")])


@pytest.mark.parametrize("image", IMAGES)
def test_the_commit_is_not_in_the_image(image: ImageName) -> None:
    values = [one.value for stage in dockerfile(image).stages.values() for one in stage.instructions]
    assert not [value for value in values if "revision" in value.lower()]


@pytest.mark.parametrize("image", IMAGES)
def test_stages_that_others_copy_from_set_the_time_of_their_files(image: ImageName) -> None:
    stages = dockerfile(image).stages
    copied = {
        value.split()[0] for stage in stages.values() for value in stage.values("COPY") if value.startswith("--from=")
    }
    for name in {one.removeprefix("--from=") for one in copied}:
        assert "SOURCE_DATE_EPOCH" in stages[name].values("ARG")
        assert '--date="@${SOURCE_DATE_EPOCH}" {} +' in stages[name].values("RUN")[-1]


def test_dockerignore_keeps_the_build_context() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    for image in IMAGES:
        for source in dockerfile(image).sources():
            assert any(source == one or source.startswith(f"{one}/") for one in allowed), source


def test_the_template_of_new_projects_is_in_the_trainer_image() -> None:
    rules = IgnoreRules((ROOT / ".dockerignore").read_text(encoding="utf-8"))
    template = ROOT / "training/project_template"
    files = select(template, is_copy=True).files
    assert [path for path in files if not rules.takes(f"training/project_template/{path}")] == []


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
    run_code_step(image, folder)
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


def run_code_step(image: ImageName, folder: Path) -> None:
    """Do in a folder with the copied code what the image's build does."""
    [step] = dockerfile(image).stages["code"].values("RUN")
    arguments = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), "VERSION": load_release().platform}
    command = ["sh", "-c", step.replace("python3", sys.executable)]
    subprocess.run(command, cwd=folder, env=arguments, check=True, capture_output=True)


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


@pytest.mark.long
@pytest.mark.xdist_group(RAY)
def test_the_trainer_images_files_train_and_search(tmp_path: Path) -> None:
    code = context("trainer", tmp_path / "code")
    run_code_step("trainer", code)
    one = ["train", "--launcher", "plain", "--num-workers", "1", "--epochs", "1", "--name", "one"]
    run_from(code, ["training", *one, "--set", "run.directory=runs"], tmp_path)
    [checkpoint] = (tmp_path / "runs" / "one" / "checkpoints").iterdir()
    manifest = json.loads((checkpoint / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["identity"]["platform_version"] == load_release().platform
    small = ["search.trials=1", "search.scheduler={name: none}", "search.directory=searches", "loop.epochs=1"]
    run_from(code, ["tune", "search", "--name", "s", *(part for one in small for part in ("--set", one))], tmp_path)
    assert (tmp_path / "searches" / "s" / "report.html").exists()


def run_from(code: Path, command: list[str], folder: Path) -> None:
    """Run a module of a copy of the code in a folder, without MLflow."""
    done = subprocess.run(
        [sys.executable, "-m", *command, "--set", "tracking.enabled=false"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(code)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
