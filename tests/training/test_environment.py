"""The description of the environment."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from infra.spec.cluster_names import PRICE_VARIABLE, WORKER_PRICE_VARIABLE
from training import environment

LIGHT = """
import sys
from training import environment
environment.describe()
print(*sorted({"torch", "ray", "mlflow", "numpy"} & set(sys.modules)))
"""


def git(folder: Path, *arguments: str) -> None:
    """Run git in a folder, with an author."""
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one committed file."""
    git(tmp_path, "init", "--initial-branch=main")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "first")
    return tmp_path


def test_the_description_is_json_and_names_the_installed_torch() -> None:
    described = json.loads(json.dumps(environment.describe()))
    assert described["packages"]["torch"] == metadata.version("torch")
    assert described["python"] == ".".join(map(str, sys.version_info[:3]))
    assert described["cpu"]["available"] >= 1
    assert described["memory_bytes"] > 2**28


def test_only_the_driver_of_a_job_knows_a_submission() -> None:
    assert environment.submitted({}) == 0.0
    assert environment.submitted({environment.SUBMITTED_VARIABLE: "1790000000.125"}) == 1790000000.125


def test_only_the_driver_of_a_job_knows_a_price() -> None:
    assert environment.dollars_per_hour({}) is None
    assert environment.dollars_per_hour({PRICE_VARIABLE: "1.25"}) == 1.25
    assert environment.dollars_per_worker_hour({}) == 0.0
    assert environment.dollars_per_worker_hour({WORKER_PRICE_VARIABLE: "0.5"}) == 0.5


def test_describing_imports_no_heavy_package() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""


def test_a_clean_checkout_is_not_dirty(repository: Path) -> None:
    found = environment.revision(repository)
    assert found is not None
    assert (found["branch"], found["dirty"], len(found["revision"])) == ("main", False, 40)


def test_a_changed_file_makes_a_checkout_dirty_but_an_untracked_one_does_not(repository: Path) -> None:
    (repository / "notes").write_text("new")
    before = environment.revision(repository)
    (repository / "file").write_text("two")
    assert before is not None
    assert before["dirty"] is False
    assert environment.revision(repository) == {**before, "dirty": True}


def test_a_folder_that_is_not_a_repository_has_no_revision(tmp_path: Path) -> None:
    assert environment.revision(tmp_path) is None


def test_a_repository_without_a_commit_has_no_revision(tmp_path: Path) -> None:
    git(tmp_path, "init")
    assert environment.revision(tmp_path) is None


def test_a_machine_without_git_has_no_revision(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repository))
    assert environment.revision(repository) is None


def test_gpus_are_read_from_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H200, 143771, 580.95.05'\necho 'NVIDIA GB10, [N/A], 580.95.05'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert environment.describe()["gpus"] == [
        {"name": "NVIDIA H200", "memory_bytes": 143771 * 2**20, "driver": "580.95.05"},
        {"name": "NVIDIA GB10", "memory_bytes": None, "driver": "580.95.05"},
    ]
