"""The locks: every version with hashes, no index URL, and one version of a package in the whole repository."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BASE: list[str] = PROJECT["project"]["dependencies"]
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
GROUPS: dict[str, list[str]] = PROJECT["dependency-groups"]
LOCKS = sorted(path.name for path in ROOT.glob("requirements*.lock"))


def versions(lock: str) -> dict[str, str]:
    """Package → version, as a lock pins them."""
    pinned = re.findall(r"^([a-z0-9._-]+)==(\S+) \\$", (ROOT / lock).read_text(encoding="ascii"), flags=re.MULTILINE)
    return dict(pinned)


def direct(requirements: list[str]) -> Iterator[tuple[str, str]]:
    """Package and version range in pyproject.toml."""
    for requirement in requirements:
        match = re.fullmatch(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?(.*)", requirement)
        assert match is not None, requirement
        yield re.sub(r"[._-]+", "-", match[1]).lower(), match[2]


def test_there_is_a_lock_for_each_kind_of_work() -> None:
    assert LOCKS == [
        "requirements-bootstrap.lock",
        "requirements-build.lock",
        "requirements-deepspeed.lock",
        "requirements-dev.lock",
        "requirements-infra.lock",
        "requirements.lock",
    ]


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_pinned_packages_with_hashes_and_nothing_else(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="ascii")
    package = r"[a-z0-9._-]+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n"
    assert re.fullmatch(rf"({package})+", text)


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-infra.lock"])
def test_the_contributors_lock_contains_the_others_at_equal_versions(lock: str) -> None:
    everything = versions("requirements-dev.lock").items()
    assert versions(lock).items() <= everything


@pytest.mark.parametrize(
    ("lock", "requirements"),
    [
        ("requirements.lock", BASE + EXTRAS["train"]),
        ("requirements-infra.lock", BASE + EXTRAS["cluster"] + GROUPS["infra"]),
        ("requirements-dev.lock", BASE + EXTRAS["train"] + EXTRAS["cluster"] + GROUPS["infra"] + GROUPS["dev"]),
        ("requirements-deepspeed.lock", EXTRAS["deepspeed"]),
        ("requirements-bootstrap.lock", GROUPS["bootstrap"]),
        ("requirements-build.lock", GROUPS["build"]),
    ],
)
def test_every_direct_dependency_is_locked_within_its_range(lock: str, requirements: list[str]) -> None:
    pinned = versions(lock)
    for name, rule in direct(requirements):
        if rule.startswith("=="):
            assert pinned[name] == rule.removeprefix("==")
        elif rule.startswith(">="):
            lowest = tuple(map(int, rule.removeprefix(">=").split(".")))
            assert tuple(map(int, pinned[name].split(".")[: len(lowest)])) >= lowest
        else:
            assert name in pinned


def test_the_wheel_is_built_with_what_is_locked() -> None:
    assert PROJECT["build-system"]["requires"] == GROUPS["build"]


def test_what_is_built_against_torch_adds_to_the_trainers_lock() -> None:
    """It is installed after the trainer's packages, and replaces none of them."""
    assert not versions("requirements-deepspeed.lock").keys() & versions("requirements.lock").keys()


def test_the_infrastructure_needs_neither_torch_nor_ray_nor_mlflow() -> None:
    assert not versions("requirements-infra.lock").keys() & {"torch", "ray", "mlflow"}


def test_the_trainer_needs_no_pulumi() -> None:
    assert [name for name in versions("requirements.lock") if name.startswith("pulumi")] == []
