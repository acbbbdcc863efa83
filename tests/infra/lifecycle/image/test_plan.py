"""The build plan: its arguments, and refusals before a build."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from infra.lifecycle.image.plan import (
    IMAGES,
    RECIPES,
    ImageName,
    Torch,
    plan,
    read_source,
    require_committed,
    torch_choice,
    write_digest,
)
from infra.spec.errors import PlatformError, RefusedError, SettingsError
from infra.spec.release import RELEASE_FILE, load_release
from infra.spec.release_rules import ROOT
from tests.infra.lifecycle.image.samples import BASE_DIGEST, EFA_SHA256, RDS_SHA256, checkout, release

DIGEST = f"sha256:{'d' * 64}"


@pytest.mark.parametrize("image", IMAGES)
def test_the_base_is_named_by_its_digest(image: ImageName, tmp_path: Path) -> None:
    build = plan(image, release(), read_source(checkout(tmp_path, image), image))
    assert build.arguments["PYTHON_IMAGE"] == f"docker.io/library/python@{BASE_DIGEST}"


def test_the_record_in_the_image_names_its_inputs(tmp_path: Path) -> None:
    source = read_source(checkout(tmp_path, "trainer"), "trainer")
    record = json.loads(plan("trainer", release(), source).arguments["BUILD"])
    assert record["revision"] == source.revision
    assert record["variant"] == "cuda"
    assert record["torch"] == release().stack.torch
    assert record["efa-installer-sha256"] == EFA_SHA256
    assert record["lock-sha256"] == hashlib.sha256((tmp_path / "requirements.lock").read_bytes()).hexdigest()


def test_a_tag_contains_version_variant_and_revision(tmp_path: Path) -> None:
    source = read_source(checkout(tmp_path, "trainer"), "trainer")
    assert plan("trainer", release(), source).tag == f"{release().platform}-cuda-{source.revision[:12]}"
    assert plan("mlflow", release(), source._replace(root=checkout_of_mlflow(tmp_path))).tag.count("-") == 1


def checkout_of_mlflow(folder: Path) -> Path:
    """The folder with MLflow's lock file too."""
    lock = folder / RECIPES["mlflow"].lock
    lock.parent.mkdir(parents=True)
    shutil.copy(folder / "requirements.lock", lock)
    return folder


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


def test_a_changed_context_is_not_pushed_and_marks_the_tag(tmp_path: Path) -> None:
    folder = checkout(tmp_path, "trainer")
    (folder / "training/module.py").write_text("changed\n")
    source = read_source(folder, "trainer")
    assert plan("trainer", release(), source).tag.endswith("-dirty")
    with pytest.raises(RefusedError, match=r"training/module\.py"):
        require_committed(source, "trainer")


@pytest.mark.parametrize("name", ["infra/spec/release.yaml", "README.md", "tests/test_x.py"])
def test_a_change_outside_the_context_does_not_prevent_a_push(name: str, tmp_path: Path) -> None:
    folder = checkout(tmp_path, "trainer")
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("changed\n")
    require_committed(read_source(folder, "trainer"), "trainer")


def test_a_new_file_of_the_context_counts_as_a_change(tmp_path: Path) -> None:
    folder = checkout(tmp_path, "trainer")
    (folder / "tune/new.py").write_text("")
    with pytest.raises(RefusedError, match=r"tune/new\.py"):
        require_committed(read_source(folder, "trainer"), "trainer")


def test_a_folder_without_a_commit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match="git show"):
        read_source(tmp_path, "trainer")


def test_writing_a_digest_changes_nothing_else(tmp_path: Path) -> None:
    file = Path(shutil.copy(RELEASE_FILE, tmp_path))
    before = file.read_text(encoding="utf-8").splitlines()
    write_digest(file, "trainer", DIGEST)
    after = file.read_text(encoding="utf-8").splitlines()
    assert load_release(file).images["trainer"].digest == DIGEST
    assert [(old.strip(), new.strip()) for old, new in zip(before, after, strict=True) if old != new] == [
        ("digest: null", f"digest: {DIGEST}")
    ]


def test_writing_a_digest_updates_the_contained_versions(tmp_path: Path) -> None:
    file = tmp_path / "release.yaml"
    text = RELEASE_FILE.read_text(encoding="utf-8")
    ray = load_release().stack.ray
    file.write_text(text.replace(f"ray: {ray}, torch", "ray: 2.59.0, torch"), encoding="utf-8")
    write_digest(file, "trainer", DIGEST)
    assert load_release(file).images["trainer"].contains["ray"] == ray


def test_an_invalid_digest_leaves_the_manifest_unchanged(tmp_path: Path) -> None:
    file = Path(shutil.copy(RELEASE_FILE, tmp_path))
    with pytest.raises(SettingsError, match="digest"):
        write_digest(file, "mlflow", "sha256:short")
    assert file.read_bytes() == RELEASE_FILE.read_bytes()


def test_the_mlflow_image_installs_the_stacks_mlflow() -> None:
    lock = (ROOT / RECIPES["mlflow"].lock).read_text(encoding="utf-8")
    assert f"\nmlflow=={load_release().stack.mlflow} \\\n" in lock
