"""What the wheel holds, and that the same files give the same wheel."""

from __future__ import annotations

import ast
import hashlib
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from infra.spec.release import load_release
from tests.engines.checkouts import copy_working_tree, project_files
from tests.makefile import ROOT
from tests.packaging.wheel import build, read_metadata

PARTS = (
    "training",
    "tune",
    "observability",
    "infra/__init__.py",
    "infra/kube",
    "infra/packages",
    "infra/spec",
    "platform_charts/__init__.py",
    "platform_charts/container_resources.py",
    "platform_charts/placement.py",
    "platform_charts/jobs",
    "platform_charts/images/__init__.py",
    "platform_charts/images/data_sync",
    "platform_charts/objects/dashboards",
)
LEFT_OUT = ("training/image/", "observability/benchmarks/")
COPIES = {"infra/packages/requirements-image.lock"}
PACKAGES = ("training", "tune", "observability", "infra", "platform_charts")


def names(wheel: Path) -> set[str]:
    """Files of the packages in a wheel."""
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def sha256(wheel: Path) -> str:
    """Hash of a wheel."""
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def test_two_builds_of_the_same_files_are_equal(wheel: Path, uv_cache: Path, tmp_path: Path) -> None:
    """The second has other times, other permissions, and files that git ignores."""
    checkout = tmp_path / "again"
    copy_working_tree(checkout)
    for name in project_files():
        (checkout / name).touch()
    (checkout / "training" / "__pycache__").mkdir()
    (checkout / "training" / "__pycache__" / "cli.cpython-311.pyc").write_bytes(b"")
    (checkout / ".env").write_text("MLFLOW_TRACKING_PASSWORD=secret")
    (checkout / "training" / "cli.py").chmod(0o600)
    again = build(checkout, cache=uv_cache, umask=0o077)
    assert (again.name, sha256(again)) == (wheel.name, sha256(wheel))


def test_the_version_is_that_of_the_release_manifest(wheel: Path, uv_cache: Path, tmp_path: Path) -> None:
    assert read_metadata(wheel).version == load_release().platform
    checkout = tmp_path / "next"
    copy_working_tree(checkout)
    manifest = checkout / "infra" / "spec" / "release.yaml"
    manifest.write_text(re.sub(r"(?m)^platform: .*$", "platform: 7.8.9", manifest.read_text(encoding="utf-8")))
    assert build(checkout, cache=uv_cache).name == "ray_train_platform-7.8.9-py3-none-any.whl"


def test_the_wheel_has_the_files_of_the_trainers_side_and_its_lock_and_no_others(wheel: Path) -> None:
    expected = {
        name
        for name in project_files()
        if any(name == part or name.startswith(f"{part}/") for part in PARTS) and not name.startswith(LEFT_OUT)
    }
    assert names(wheel) == expected | COPIES
    unwanted = re.compile(r"(^|/)(tests?|docs|conftest\.py|\.env.*|.*\.(pem|key|tfstate))(/|$)")
    assert [name for name in names(wheel) if unwanted.search(name)] == []
    packed = zipfile.ZipFile(wheel).read("infra/packages/requirements-image.lock")
    assert packed == (ROOT / "requirements-image.lock").read_bytes()
    assert set(read_metadata(wheel).metadata.get_all("Provides-Extra") or []) == {
        "train",
        "job",
        "session",
        "cluster",
        "deepspeed",
    }


def test_every_module_that_the_wheel_imports_is_in_it(wheel: Path) -> None:
    have = {_module(name) for name in names(wheel) if name.endswith(".py")}
    archive = zipfile.ZipFile(wheel)
    missing = {
        f"{name} imports {imported}"
        for name in names(wheel)
        if name.endswith(".py")
        for imported in _imported(archive.read(name).decode())
        if imported.partition(".")[0] in PACKAGES and imported not in have
    }
    assert missing == set()


def _module(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imported(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
