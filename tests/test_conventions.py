"""The project's conventions as checks: layout, lengths, imports."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.engines.checkouts import project_files

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"infra", "platform_charts", "training", "tune", "observability", "tests", "docs", "findings"}
FILES = {
    "Pulumi.yaml",
    "Makefile",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "mkdocs.yml",
    "pyproject.toml",
}
FILE_LIMIT = 500
FUNCTION_LIMIT = 80
HEAVY = {"torch", "ray", "mlflow", "numpy", "sklearn", "matplotlib", "pandas", "scipy", "optuna", "pulumi"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def modules() -> dict[str, ast.Module]:
    """Every Python file of the project, parsed, by name."""
    names = [name for name in project_files() if name.endswith(".py")]
    # CPython 3.11 raises SystemError if a garbage collection within ast.parse runs Python code that parses, too (gh-106905).
    gc.disable()
    try:
        return {name: ast.parse((ROOT / name).read_text(encoding="utf-8"), filename=name) for name in names}
    finally:
        gc.enable()


def functions(tree: ast.Module) -> Iterator[Function]:
    """All functions and methods, including nested ones."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def test_the_top_level_has_only_packages_and_conventional_files() -> None:
    top = {name.split("/")[0] for name in project_files()}
    unexpected = {name for name in top - PACKAGES - FILES if not re.fullmatch(r"\..+|requirements.*\.lock", name)}
    assert unexpected == set()


def test_every_file_is_shorter_than_the_limit() -> None:
    lengths = {name: (ROOT / name).read_text(encoding="utf-8").count("\n") + 1 for name in modules()}
    assert {name: length for name, length in lengths.items() if length >= FILE_LIMIT} == {}


def test_every_function_is_shorter_than_the_limit() -> None:
    spans = {
        f"{name}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for name, tree in modules().items()
        for node in functions(tree)
    }
    assert {name: span for name, span in spans.items() if span >= FUNCTION_LIMIT} == {}


def test_pytest_collects_every_test() -> None:
    uncollected = [
        name
        for name, tree in modules().items()
        if name.startswith("tests/")
        and not Path(name).name.startswith("test_")
        and any(node.name.startswith("test_") for node in tree.body if isinstance(node, Function))
    ]
    assert uncollected == []


# Written in pieces, so that this file does not contain what it forbids.
MACHINE_TRACES = {
    "a path of one machine": r"/(?:root|home/\w+|wo" + r"rk|Users/\w+)/",
    "a package index": r"pypi\." + r"org|python" + r"hosted|--(?:extra-)?index-url[ =]h",
    "a marker of unfinished work": r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b",
}


def test_no_file_holds_a_trace_of_a_machine_or_of_unfinished_work() -> None:
    patterns = {what: re.compile(pattern.encode()) for what, pattern in MACHINE_TRACES.items()}
    contents = {name: (ROOT / name).read_bytes() for name in project_files()}
    assert [(name, what) for name, text in contents.items() for what in patterns if patterns[what].search(text)] == []


def heavy_imports(*program: str) -> set[str]:
    """The heavy packages that a new Python process imports."""
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", *program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    lines = ended.stderr.splitlines()
    assert ended.returncode == 0, "\n".join(line for line in lines if not line.startswith("import time:"))
    imported = {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}
    assert "site" in imported
    return imported & HEAVY


def test_mypy_reads_every_service_of_aws_that_the_stack_uses() -> None:
    configured = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]["overrides"]
    read = {name for part in configured if part.get("follow_imports") == "normal" for name in part["module"]}
    nodes = (node for name, tree in modules().items() if name.startswith("infra/aws/") for node in ast.walk(tree))
    chains = (node.value for node in nodes if isinstance(node, ast.Attribute))
    used = {ast.unparse(one) for one in chains if isinstance(one, ast.Attribute)}
    services = {name.removeprefix("aws.") for name in used if re.fullmatch(r"aws\.[a-z0-9_]+", name)}
    assert len(services) > 10
    assert {name for name in services if f"pulumi_aws.{name}.*" not in read} == set()


def test_a_command_that_does_not_train_imports_nothing_heavy() -> None:
    for words in (
        ("training", "--help"),
        ("training", "train", "--print-config"),
        ("tune", "search", "--print-config"),
    ):
        assert heavy_imports("-m", *words) == set(), words
