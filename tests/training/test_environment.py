"""The description of the environment."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path

import pytest

from infra.spec.cluster_names import PRICE_VARIABLE, WORKER_PRICE_VARIABLE
from tests.training.code.projects import committed, git
from tests.training.test_preflight import with_driver
from training import environment
from training.network import interface_towards


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one committed file."""
    folder = committed(tmp_path / "repository", {"file": "one"})
    git(folder, "branch", "-M", "main")
    return folder


def test_the_description_is_json_and_names_the_installed_torch() -> None:
    described = json.loads(json.dumps(environment.describe()))
    assert described["packages"]["torch"] == metadata.version("torch")
    assert described["python"] == ".".join(map(str, sys.version_info[:3]))
    assert described["cpu"]["available"] >= 1
    assert described["memory_bytes"] > 2**28


def test_only_the_driver_of_a_job_knows_a_submission_and_a_price() -> None:
    assert environment.submitted({}) == 0.0
    assert environment.submitted({environment.SUBMITTED_VARIABLE: "1790000000.125"}) == 1790000000.125
    assert environment.dollars_per_hour({}) is None
    assert environment.dollars_per_hour({PRICE_VARIABLE: "1.25"}) == 1.25
    assert environment.dollars_per_worker_hour({}) == 0.0
    assert environment.dollars_per_worker_hour({WORKER_PRICE_VARIABLE: "0.5"}) == 0.5


def test_a_changed_file_makes_a_checkout_dirty_but_an_untracked_one_does_not(repository: Path) -> None:
    (repository / "notes").write_text("new")
    clean = environment.revision(repository)
    assert clean is not None
    assert (clean["branch"], clean["dirty"], len(clean["revision"])) == ("main", False, 40)
    (repository / "file").write_text("two")
    assert environment.revision(repository) == {**clean, "dirty": True}


def test_without_git_there_is_no_revision(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment.revision(tmp_path) is None
    git(tmp_path, "init")
    assert environment.revision(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert environment.revision(repository) is None


def test_gpus_are_read_from_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_driver(tmp_path, monkeypatch, "NVIDIA H200, 143771, 580.95.05", "NVIDIA GB10, [N/A], 580.95.05")
    assert environment.describe()["gpus"] == [
        {"name": "NVIDIA H200", "memory_bytes": 143771 * 2**20, "driver": "580.95.05"},
        {"name": "NVIDIA GB10", "memory_bytes": None, "driver": "580.95.05"},
    ]


def test_this_machine_is_reached_over_loopback_and_a_name_that_does_not_resolve_over_nothing() -> None:
    assert interface_towards("127.0.0.1") == interface_towards("localhost") == "lo"
    assert interface_towards("no-such-host.invalid") is None
