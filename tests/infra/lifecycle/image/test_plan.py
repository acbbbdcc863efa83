"""The build plan: its arguments, and refusals before a build."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from infra.lifecycle.image.plan import Torch, plan, require_pinned_base, torch_choice
from infra.lifecycle.image.recipes import IMAGES, RECIPES, ImageName
from infra.lifecycle.image.source import read_source
from infra.spec.errors import RefusedError, SettingsError
from infra.spec.release import load_release
from infra.spec.release_rules import ROOT
from tests.infra.lifecycle.image.samples import BASE_DIGEST, EFA_SHA256, RDS_SHA256, checkout, commit, release


@pytest.mark.parametrize("image", IMAGES)
def test_the_base_is_named_by_its_digest(image: ImageName, tmp_path: Path) -> None:
    build = plan(image, release(), read_source(checkout(tmp_path, image), image))
    assert build.arguments["PYTHON_IMAGE"] == f"docker.io/library/python@{BASE_DIGEST}"


def test_the_record_in_the_image_names_its_inputs(tmp_path: Path) -> None:
    source = read_source(checkout(tmp_path, "trainer"), "trainer")
    record = json.loads(plan("trainer", release(), source).arguments["BUILD"])
    assert record["variant"] == "cuda"
    assert record["torch"] == release().stack.torch
    assert record["efa-installer-sha256"] == EFA_SHA256
    assert record["lock-sha256"] == hashlib.sha256((tmp_path / "requirements.lock").read_bytes()).hexdigest()


def test_a_tag_has_version_variant_and_identity(tmp_path: Path) -> None:
    trainer = read_source(checkout(tmp_path / "trainer", "trainer"), "trainer")
    assert re.fullmatch(rf"{release().platform}-cuda-[0-9a-f]{{12}}", plan("trainer", release(), trainer).tag)
    mlflow = read_source(checkout(tmp_path / "mlflow", "mlflow"), "mlflow")
    assert re.fullmatch(rf"{release().platform}-[0-9a-f]{{12}}", plan("mlflow", release(), mlflow).tag)


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


@pytest.mark.parametrize(
    "name", ["training/module.py", "requirements.lock", "training/image/Dockerfile", "pyproject.toml", "tune/new.py"]
)
def test_changed_content_is_another_build(name: str, tmp_path: Path) -> None:
    folder = checkout(tmp_path, "trainer")
    before = plan("trainer", release(), read_source(folder, "trainer"))
    with (folder / name).open("a") as file:
        file.write("changed\n")
    commit(folder)
    assert plan("trainer", release(), read_source(folder, "trainer")).tag != before.tag


def test_another_variant_torch_installer_or_base_is_another_build(tmp_path: Path) -> None:
    source = read_source(checkout(tmp_path, "trainer"), "trainer")
    base = release()
    moved = base.images["python-base"].model_copy(update={"digest": f"sha256:{'c' * 64}"})
    builds = [
        plan("trainer", base, source),
        plan("trainer", release(efa_sha256="f" * 64), source),
        plan("trainer", base.model_copy(update={"images": {**base.images, "python-base": moved}}), source),
        plan("trainer", base, source, variant="cpu", torch=Torch("2.15.0+cpu", "")),
        plan("trainer", base, source, variant="cpu", torch=Torch("2.14.0+cpu", "")),
    ]
    assert len({build.tag for build in builds}) == len(builds)


def test_the_address_of_an_index_is_not_part_of_the_identity(tmp_path: Path) -> None:
    source = read_source(checkout(tmp_path, "trainer"), "trainer")
    tags = {
        plan("trainer", release(), source, variant="cpu", torch=Torch("2.15.0+cpu", index)).tag
        for index in ("", "https://a")
    }
    assert len(tags) == 1


def test_a_base_without_a_digest_is_not_pushed() -> None:
    require_pinned_base(release())
    with pytest.raises(RefusedError, match=r"images\.python-base\.digest .* is unresolved"):
        require_pinned_base(load_release())


def test_without_the_installers_hash_the_cuda_variant_is_refused_with_a_remedy(tmp_path: Path) -> None:
    source = read_source(checkout(tmp_path, "trainer"), "trainer")
    with pytest.raises(RefusedError, match=r"downloads\.efa-installer\.sha256") as refused:
        plan("trainer", release(efa_sha256=None), source)
    assert "check its signature" in refused.value.remedy


def test_without_the_certificates_hash_mlflows_image_is_refused(tmp_path: Path) -> None:
    source = read_source(checkout(tmp_path, "mlflow"), "mlflow")
    assert plan("mlflow", release(), source).arguments["RDS_CERTIFICATES_SHA256"] == RDS_SHA256
    with pytest.raises(RefusedError, match=r"downloads\.rds-certificates\.sha256"):
        plan("mlflow", release(rds_sha256=None), source)


def test_the_cpu_variant_does_not_need_efa(tmp_path: Path) -> None:
    source = read_source(checkout(tmp_path, "trainer"), "trainer")
    build = plan("trainer", release(efa_sha256=None), source, variant="cpu", torch=Torch("2.15.0+cpu", "x"))
    assert build.target == "cpu"
    assert build.arguments["TORCH_VERSION"] == "2.15.0+cpu"
    assert not [name for name in build.arguments if name.startswith("EFA")]


def test_the_address_of_an_index_is_not_recorded(tmp_path: Path) -> None:
    source = read_source(checkout(tmp_path, "trainer"), "trainer")
    torch = Torch("2.15.0+cpu", "https://user:secret@index.example/simple")
    assert "secret" not in plan("trainer", release(), source, variant="cpu", torch=torch).arguments["BUILD"]


def test_the_release_pins_the_cuda_variant(tmp_path: Path) -> None:
    source = read_source(checkout(tmp_path, "trainer"), "trainer")
    assert plan("trainer", release(), source).is_released
    assert not plan("trainer", release(), source, variant="cpu").is_released


@pytest.mark.parametrize(
    ("variant", "variables"), [("cpu", {}), ("cuda", {"TORCH_VERSION": "2.15.0+cpu"}), ("cpu", {"TORCH_INDEX": "x"})]
)
def test_a_torch_build_that_does_not_match_the_variant_is_refused(variant: str, variables: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="TORCH_VERSION"):
        torch_choice(variant, variables)  # type: ignore[arg-type]


def test_the_mlflow_image_installs_the_stacks_mlflow() -> None:
    lock = (ROOT / RECIPES["mlflow"].lock).read_text(encoding="utf-8")
    assert f"\nmlflow=={load_release().stack.mlflow} \\\n" in lock
