"""The same content built twice, from two checkouts, at two times, gives the same bytes."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infra.lifecycle.image.engines import Buildah
from infra.lifecycle.image.plan import EPOCH, Build, plan
from infra.lifecycle.image.recipes import IMAGES, RECIPES
from infra.lifecycle.image.source import read_source
from infra.spec.release_rules import ROOT
from tests.engines.image_builder import ImageBuilder, image_builder
from tests.infra.lifecycle.image.dockerfile import read
from tests.infra.lifecycle.image.samples import commit, git, release


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImageBuilder]:
    """A real engine."""
    with image_builder(tmp_path_factory.mktemp("builder")) as found:
        yield found


def clone(folder: Path, *, umask: int, message: str) -> Path:
    """This repository's files of MLflow's image in a checkout of its own, with the permissions of a umask."""
    recipe = RECIPES["mlflow"]
    for name in (recipe.dockerfile, recipe.lock, *recipe.context):
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            shutil.copy(source, target)
    for path in folder.rglob("*"):
        path.chmod((0o777 if path.is_dir() or os.access(path, os.X_OK) else 0o666) & ~umask)
    git(folder, "init", "--quiet")
    (folder / "README.md").write_text(message)
    commit(folder)
    return folder


def without_installation(text: str) -> str:
    """A Dockerfile without the steps that install packages or make users, which need a network and a whole system."""
    steps = re.sub(r"\\\n", " ", text).splitlines()
    unwanted = re.compile(r"(?:RUN .*(?:pip|python3 -c|install-efa|/torch|ldd) )|COPY --from=(?!code)")
    return "\n".join(step for step in steps if not unwanted.match(step)) + "\n"


def small_build(folder: Path, *, base: str) -> Build:
    """The build of MLflow's image without its installed packages, on the test's base image."""
    build = plan("mlflow", release(), read_source(folder, "mlflow"))
    dockerfile = folder.with_name(f"{folder.name}.Dockerfile")
    dockerfile.write_text(without_installation(build.dockerfile.read_text(encoding="utf-8")))
    arguments = {**build.arguments, "PYTHON_IMAGE": base, "RUNTIME_IMAGE": base}
    return replace(build, target="mlflow", arguments=arguments, dockerfile=dockerfile)


def test_two_checkouts_give_the_same_image(builder: ImageBuilder, tmp_path: Path) -> None:
    one = small_build(clone(tmp_path / "one", umask=0o022, message="one"), base=builder.base)
    other = small_build(clone(tmp_path / "other", umask=0o077, message="other"), base=builder.base)
    assert one.revision != other.revision
    assert one.tag == other.tag
    digests = []
    for number, build in enumerate((one, other)):
        for path in build.context.rglob("*"):
            os.utime(path, (time.time(), time.time() - 1000 * number), follow_symlinks=False)
        reference = f"localhost/mlflow:{number}"
        builder.run(*[word for word in Buildah().build(build, reference)[1:] if word != "--layers"])
        digests.append(builder.export(reference, tmp_path / str(number)))
    assert digests[0] == digests[1]


def test_a_user_has_the_day_of_the_epoch(tmp_path: Path) -> None:
    """`useradd` writes the day into /etc/shadow: that of SOURCE_DATE_EPOCH, if the stage declares it."""
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin")
    if useradd is None or os.geteuid() != 0:
        pytest.skip("useradd needs root, and Debian's package passwd")
    for image in IMAGES:
        stage, etc = read(ROOT / RECIPES[image].dockerfile).stages["runtime"], tmp_path / image / "etc"
        step = next(value for value in stage.values("RUN") if "useradd" in value)
        assert "SOURCE_DATE_EPOCH" in stage.values("ARG")
        etc.mkdir(parents=True)
        for name in ("passwd", "shadow", "gshadow"):
            (etc / name).touch()
        (etc / "group").write_text("some:x:1000:\n")
        words = shlex.split(next(part for part in step.split("&&") if "useradd" in part))
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
        subprocess.run([useradd, "--prefix", etc.parent, *words[1:]], env=environment, check=True, capture_output=True)
        assert (etc / "shadow").read_text().split(":")[2] == str(EPOCH // 86_400), image
