"""The stage without the code as an image of its own, the room that a build needs, and two builds with the same bytes."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from infra.lifecycle.image.disk import Need, require_room
from infra.lifecycle.image.engines import Buildah, Docker
from infra.lifecycle.image.plan import Build, Torch, plan
from infra.lifecycle.image.recipes import IMAGES, RECIPES, ImageName
from infra.lifecycle.image.runtime import has_runtime, needed_room, on_runtime, runtime_reference
from infra.lifecycle.image.source import read_source
from infra.spec.errors import RefusedError
from infra.spec.release_rules import ROOT
from tests.engines.image_builder import ImageBuilder
from tests.engines.small_disk import small_disk
from tests.infra.lifecycle.image.samples import checkout, commit, git, release

pytestmark = pytest.mark.extended

DOCKERFILE = """ARG PYTHON_IMAGE
ARG RUNTIME_IMAGE=runtime
FROM ${PYTHON_IMAGE} AS environment
RUN mkdir /packages && echo one > /packages/one
FROM ${PYTHON_IMAGE} AS runtime
COPY --from=environment /packages /packages
FROM ${RUNTIME_IMAGE} AS mlflow
COPY platform_charts/images/mlflow_server /code
"""


def planned(folder: Path, image: ImageName, torch: Torch | None = None) -> Build:
    return plan(image, release(), read_source(folder, image), variant="cpu", torch=torch)


@pytest.mark.parametrize("image", IMAGES)
def test_code_does_not_change_it_and_packages_do(image: ImageName, tmp_path: Path) -> None:
    folder = checkout(tmp_path, image)
    before = planned(folder, image)
    code = folder / ("platform_charts/images/mlflow_server" if image == "mlflow" else "training") / "module.py"
    code.write_text("other\n")
    after = planned(folder, image)
    assert after.tag != before.tag
    assert after.runtime == before.runtime
    lock = after.lock
    lock.write_text(lock.read_text().replace("numpy", "scipy"))
    assert planned(folder, image).runtime != before.runtime


def test_another_torch_is_another_one_that_needs_less_room_but_not_a_mirror_of_its_index(tmp_path: Path) -> None:
    folder = checkout(tmp_path, "trainer")
    one, mirror, other = (
        planned(folder, "trainer", torch)
        for torch in (Torch("2.15.0+cpu", "a"), Torch("2.15.0+cpu", "b"), Torch("2.15.0+other", "a"))
    )
    assert one.runtime == mirror.runtime
    assert one.runtime != other.runtime
    assert one.room < planned(folder, "trainer").room / 2


def test_an_engine_whose_cache_looks_first_builds_in_one_step(tmp_path: Path) -> None:
    build = planned(checkout(tmp_path, "mlflow"), "mlflow")
    assert on_runtime(build, Docker(), run=lambda _: None) == build


def test_a_change_of_code_builds_on_it(builder: ImageBuilder, tmp_path: Path) -> None:
    folder, ran = checkout(tmp_path / "checkout", "mlflow"), list[str]()
    (folder / "platform_charts/images/mlflow_server/Dockerfile").write_text(DOCKERFILE)

    def run(command: Sequence[str]) -> None:
        ran.append(command[command.index("--target") + 1])
        builder.run(*command[1:])

    def built() -> str:
        found = planned(folder, "mlflow")
        build = replace(found, arguments={"PYTHON_IMAGE": builder.base})
        assert has_runtime(build, builder.engine) == bool(ran)
        run(builder.engine.build(on_runtime(build, builder.engine, run=run), "localhost/m:1"))
        assert runtime_reference(build).endswith(f"/runtime:{found.runtime}")
        root = Path(builder.run("mount", builder.run("from", "localhost/m:1").strip()).strip())
        return "".join(file.read_text() for file in (root / "packages/one", *sorted(root.glob("code/*.py"))))

    assert built().split()[0] == "one"
    (folder / "platform_charts/images/mlflow_server/module.py").write_text("two\n")
    assert built().split() == ["one", "two"]
    assert ran == ["runtime", "mlflow", "mlflow"]


def test_a_store_that_is_too_small_for_it_is_refused_before_the_build(builder: ImageBuilder, tmp_path: Path) -> None:
    build = replace(planned(checkout(tmp_path, "mlflow"), "mlflow"), room=10**15)
    with pytest.raises(RefusedError, match=r"free, 1000000\.0 GB needed: 1000000\.0 GB for the build of mlflow"):
        on_runtime(build, builder.engine, run=lambda _: None)
    assert needed_room(build, Docker()) == []  # whose cache may have it


def test_a_disk_that_is_too_small_for_everything_together_is_refused(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", size="10m") as disk:
        needs = [Need(disk / "store", 6_000_000, "the build of trainer"), Need(disk, 5_000_000, "trainer in the")]
        for need in needs:
            require_room([need])
        with pytest.raises(RefusedError) as refused:
            require_room([*needs, Need(tmp_path, 1, "nothing")])
    message = refused.value.args[0]
    assert f"{disk}: 10.5 MB free, 11.0 MB needed: 6.0 MB for the build of trainer, 5.0 MB for trainer in" in message
    assert str(tmp_path / "nothing") not in message
    assert "buildah rmi --prune" in refused.value.remedy


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
