"""The Dockerfiles: pinned, without root, with the developers' lock file; steps that need no container are run."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.lifecycle.image.derive import DOCKERFILE as DERIVED
from infra.lifecycle.image.plan import EPOCH, Torch, plan
from infra.lifecycle.image.recipes import IMAGES, RECIPES, VARIANTS, ImageName
from infra.lifecycle.image.source import IgnoreRules, Source
from infra.spec.release import load_release
from infra.spec.release_rules import ROOT
from infra.spec.settings.stores import StorageSettings
from tests.distribution import RAY
from tests.engines.report_table import ran, skipped
from tests.infra.lifecycle.image.dockerfile import Dockerfile, read
from tests.infra.lifecycle.image.samples import release
from training.code.selection import select

FINAL = {"trainer": ("cpu", "cuda"), "session": ("session-cpu", "session-cuda"), "mlflow": ("mlflow",)}
TOOLS = {f"training/image/{name}" for name in ("install-efa", "remove_unused.py", "unused.txt")}
"""Files of the folder `training` that stages of the build take alone."""


def dockerfile(image: ImageName) -> Dockerfile:
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


def test_hadolint_reports_nothing() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if hadolint is None:
        skipped("hadolint", "no hadolint on PATH or in .venv", "make env FOR=dev")
    files = [str(DERIVED), *(str(ROOT / recipe.dockerfile) for recipe in RECIPES.values())]
    answer = subprocess.run([hadolint, *files], check=False, capture_output=True, text=True)
    ran("hadolint")
    assert (answer.stdout, answer.returncode) == ("", 0)


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_starts_from_the_pinned_base_and_runs_as_the_owner_of_the_file_system(image: ImageName) -> None:
    stages = dockerfile(image).stages
    assert dockerfile(image).arguments == ("PYTHON_IMAGE", "RUNTIME_IMAGE=runtime")
    assert {stage.base for stage in stages.values()} <= {"${PYTHON_IMAGE}", "${RUNTIME_IMAGE}", *stages}
    uid = StorageSettings.model_fields["efs_uid"].default
    for final in FINAL[image]:
        last = next(stage.values("USER")[-1] for stage in dockerfile(image).lineage(final) if stage.values("USER"))
        assert last == f"{uid}:{uid}"


@pytest.mark.parametrize("image", IMAGES)
def test_the_copied_files_are_those_of_the_recipe(image: ImageName) -> None:
    stages, recipe = dockerfile(image).stages, RECIPES[image]
    assert set(dockerfile(image).sources()) - TOOLS == {recipe.lock, *recipe.context} - {".dockerignore"}
    without_code = {
        source
        for name in ("environment", "runtime")
        for value in stages[name].values("COPY")
        if not value.startswith("--from=")
        for source in value.split()[:-1]
    }
    assert without_code == {recipe.lock, *recipe.runtime}
    assert {value.split()[0] for value in stages["runtime"].values("COPY")} == {"--from=environment"}
    rules = IgnoreRules((ROOT / ".dockerignore").read_text(encoding="utf-8"))
    files = [source for source in dockerfile(image).sources() if (ROOT / source).is_file()]
    if image != "mlflow":  # which has the template of new projects
        template = "training/project_template"
        files += [f"{template}/{path}" for path in select(ROOT / template, is_copy=True).files]
    assert [source for source in files if not rules.takes(source)] == []


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
    values = [one.value for stage in stages for one in stage.instructions]
    assert not [value for value in values if "revision" in value.lower()], "the commit is not in the image"


@pytest.mark.parametrize("image", IMAGES)
def test_files_and_bytecode_do_not_depend_on_the_time_of_the_build(image: ImageName) -> None:
    """The engine sets the time of every file, so bytecode that is checked by time would be compiled again in every process."""
    stages = dockerfile(image).stages
    for stage in (stages[name] for name in ("environment", "jupyterlab", "code") if name in stages):
        [compiling] = [step for step in stage.values("RUN") if "compileall" in step]
        assert "PYTHONHASHSEED=0" in compiling
        assert "--invalidation-mode unchecked-hash" in compiling
    making_users = [stage for stage in stages.values() if any("useradd" in step for step in stage.values("RUN"))]
    assert all("SOURCE_DATE_EPOCH" in stage.values("ARG") for stage in making_users), "useradd writes the day"
    copied = {value.split()[0] for stage in stages.values() for value in stage.values("COPY")}
    for name in {one.removeprefix("--from=") for one in copied if one.startswith("--from=")}:
        assert "SOURCE_DATE_EPOCH" in stages[name].values("ARG")
        assert '--date="@${SOURCE_DATE_EPOCH}" {} +' in stages[name].values("RUN")[-1]


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
    command = ["sh", "-c", step.replace("python3", shlex.quote(sys.executable))]
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


@pytest.mark.extended
@pytest.mark.xdist_group(RAY)
def test_the_trainer_images_files_train_and_search(tmp_path: Path) -> None:
    # Only a run and a search import everything that an image needs; each starts Ray or torch, over 20 CPU seconds together.
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
