"""The locks: every version with hashes, no index URL, and one version of a package in the whole repository."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import grimp

from infra.packages.derived import LINUX
from infra.packages.lock import read_lock

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BASE: list[str] = PROJECT["project"]["dependencies"]
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
GROUPS: dict[str, list[str]] = PROJECT["dependency-groups"]
LOCKS = sorted(path.name for path in ROOT.glob("requirements*.lock"))


def versions(lock: str) -> dict[str, str]:
    """Package → version, as a lock pins them for this Python on Linux."""
    return {package.name: package.version for package in read_lock(ROOT / lock, LINUX)}


def direct(requirements: list[str]) -> Iterator[tuple[str, str]]:
    """Package and version range in pyproject.toml."""
    for requirement in requirements:
        match = re.fullmatch(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?(.*)", requirement)
        assert match is not None, requirement
        yield re.sub(r"[._-]+", "-", match[1]).lower(), match[2]


TRAINER = [*EXTRAS["job"], *EXTRAS["session"], *EXTRAS["train"][1:]]
"""The extra `train`, whose first line names the other two."""

REQUIREMENTS = {
    "requirements.lock": BASE + TRAINER,
    "requirements-image.lock": BASE + EXTRAS["job"],
    "requirements-session.lock": EXTRAS["session"],
    "requirements-infra.lock": BASE + EXTRAS["cluster"] + GROUPS["infra"],
    "requirements-dev.lock": BASE + TRAINER + EXTRAS["cluster"] + GROUPS["infra"] + GROUPS["dev"],
    "requirements-deepspeed.lock": EXTRAS["deepspeed"],
    "requirements-bootstrap.lock": GROUPS["bootstrap"],
    "requirements-build.lock": GROUPS["build"],
}
"""What each lock is resolved from."""

CPU = "requirements-cpu.lock"
"""The CPU build of torch alone; `make lock` writes it where PyTorch's index answers."""


def test_every_lock_holds_pinned_packages_with_hashes_and_nothing_else() -> None:
    assert sorted(REQUIREMENTS) == [lock for lock in LOCKS if lock != CPU]
    package = r"[a-z0-9._-]+==\S+( ; [^\\\n]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+\n"
    for lock in LOCKS:
        assert re.fullmatch(rf"({package})+", (ROOT / lock).read_text(encoding="ascii")), lock


def test_the_contributors_lock_contains_the_others_at_equal_versions() -> None:
    everything = versions("requirements-dev.lock").items()
    assert versions("requirements.lock").items() <= everything
    parts = {**versions("requirements-image.lock"), **versions("requirements-session.lock")}
    assert parts.items() <= versions("requirements.lock").items()
    assert versions("requirements-infra.lock").items() <= everything


def test_every_direct_dependency_is_locked_within_its_range() -> None:
    for lock, requirements in REQUIREMENTS.items():
        pinned = versions(lock)
        for name, rule in direct(requirements):
            if rule.startswith("=="):
                assert pinned[name] == rule.removeprefix("=="), lock
            elif rule.startswith(">="):
                lowest = tuple(map(int, rule.removeprefix(">=").split(".")))
                assert tuple(map(int, pinned[name].split(".")[: len(lowest)])) >= lowest, f"{lock}: {name}"
            else:
                assert name in pinned, lock


def test_the_cpu_build_is_that_of_the_locked_torch() -> None:
    if CPU in LOCKS:
        assert versions(CPU) == {"torch": f"{versions('requirements.lock')['torch']}+cpu"}


def test_the_wheel_is_built_with_what_is_locked() -> None:
    assert PROJECT["build-system"]["requires"] == GROUPS["build"]


def test_no_lock_has_what_its_kind_of_work_does_not_need() -> None:
    """What is installed after the packages of jobs replaces none of them."""
    assert EXTRAS["train"][0] == "ray-train-platform[job,session]"
    jobs = versions("requirements-image.lock").keys()
    for added in ("requirements-deepspeed.lock", "requirements-session.lock"):
        assert not versions(added).keys() & jobs
    assert not jobs & {
        "mlflow",
        "flask",
        "docker",
        "gunicorn",
        "jupyterlab",
        "jupyter-server",
        "ipykernel",
        "notebook-shim",
    }
    assert not versions("requirements-infra.lock").keys() & {"torch", "ray", "mlflow"}
    assert [name for name in versions("requirements.lock") if name.startswith("pulumi")] == []


def imported_by(root: str) -> dict[str, set[str]]:
    """Package of others → modules that import it: those of one of ours and all that these import at any time, also within a function."""
    ours = ("infra", "platform_charts", "observability", "training", "tune")
    graph = grimp.build_graph(*ours, include_external_packages=True, cache_dir=None)
    found: dict[str, set[str]] = {}
    seen, left = set[str](), {one for one in graph.modules if one.startswith(f"{root}.")}
    while left:
        module = left.pop()
        seen.add(module)
        for imported in graph.find_modules_directly_imported_by(module):
            top = imported.partition(".")[0]
            if top in ours:
                left |= {imported} - seen
            elif top not in sys.stdlib_module_names:
                found.setdefault(top, set()).add(module)
    return found


def lacking(root: str, *locks: str) -> dict[str, set[str]]:
    """What a package of ours imports and these locks lack."""
    have, distributions = {name for lock in locks for name in versions(lock)}, packages_distributions()
    return {
        package: modules
        for package, modules in imported_by(root).items()
        if not have & {re.sub(r"[._-]+", "-", name).lower() for name in distributions[package]}
    }


def test_a_job_finds_every_package_that_it_imports_in_the_image() -> None:
    """It reaches no cluster, which the others here do from a laptop."""
    elsewhere = ("training.cluster.", "training.vms.", "infra.kube.", "platform_charts.jobs.")
    found = {
        package: left
        for root in ("training", "tune")
        for package, modules in lacking(root, "requirements-image.lock", "requirements-deepspeed.lock").items()
        if (left := {one for one in modules if not one.startswith(elsewhere)})
    }
    assert found == {}


def test_every_command_for_the_stack_runs_with_the_lock_that_its_target_installs() -> None:
    """`make upgrade` and `make down` of an environment that was made for the stack only."""
    assert lacking("infra.lifecycle", "requirements-infra.lock") == {}
