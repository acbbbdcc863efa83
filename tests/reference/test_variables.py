"""The inventory of environment variables has what the source files read and set, and `.env.example` has what users may set."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

from infra.spec.variables.internal import INTERNAL
from infra.spec.variables.inventory import INVENTORY
from infra.spec.variables.libraries import LIBRARIES
from infra.spec.variables.users import USERS
from tests.engines.checkouts import project_files
from tests.reference.accesses import Sources, in_dockerfile, in_makefile, in_shell

ROOT = Path(__file__).resolve().parents[2]
SHELL = (".ci/run", ".make/clean", ".make/environment", ".make/lock", ".make/wheel")
NOT_OURS = ("tests/", "training/project_template/")
TESTS = "tests"
DEEP = {"platform_charts/images": 3, "infra": 2, "platform_charts": 2}
"""How many parts of a path name the package that uses a variable, by the path's beginning; else one."""


def package_of(name: str) -> str:
    """The package of a Python file, as the inventory names it."""
    parts = name.removesuffix(".py").split("/")
    depth = next((depth for begin, depth in DEEP.items() if name.startswith(f"{begin}/")), 1)
    return ".".join(parts[:depth])


@cache
def used_by() -> dict[str, set[str]]:
    """The packages, and files that are not Python, that use each variable."""
    sources, found = Sources(ROOT), dict[str, set[str]]()
    for name in project_files():
        if name.startswith(NOT_OURS):
            continue
        for variable in _variables_in(name, sources):
            found.setdefault(variable, set()).add(package_of(name) if name.endswith(".py") else name)
    return found


def _variables_in(name: str, sources: Sources) -> set[str]:
    if name.endswith(".py"):
        return sources.accesses(name)
    text = (ROOT / name).read_text(encoding="utf-8") if name.endswith(("Dockerfile", "Makefile", *SHELL)) else ""
    if name in SHELL:
        return in_shell(text)
    return in_makefile(text) if name == "Makefile" else in_dockerfile(text)


def test_the_inventory_names_every_use_and_nothing_else() -> None:
    named = {name: set(one.used_by) - {TESTS} for name, one in INVENTORY.items()}
    assert {name: packages for name, packages in named.items() if packages} == used_by()


def test_a_variable_without_a_use_is_of_the_tests_or_of_a_library() -> None:
    assert [one.name for one in INVENTORY.values() if not (one.used_by or one.library)] == []


def test_a_name_is_in_one_group_only() -> None:
    names = [one.name for part in (USERS, INTERNAL, LIBRARIES) for group in part.values() for one in group]
    assert sorted(names) == sorted(INVENTORY)


def test_each_variable_of_other_software_says_whose_it_is() -> None:
    assert [one.name for group in LIBRARIES.values() for one in group if not one.library] == []


def test_the_inventory_has_what_the_tests_read_to_find_programs() -> None:
    read = r"os\.environ(?:\.get\(|\[)\"([A-Z_]+)\""
    engines = [name for name in project_files() if name.startswith("tests/engines/") and name.endswith(".py")]
    found = {name for file in engines for name in re.findall(read, (ROOT / file).read_text(encoding="utf-8"))}
    assert found
    assert found <= INVENTORY.keys()


def test_the_inventory_has_every_name_of_ours_that_any_file_mentions() -> None:
    found = {
        name
        for file in project_files()
        if not file.startswith("tests/")
        for name in re.findall(rb"\bRTP_[A-Z_]*[A-Z]\b", (ROOT / file).read_bytes())
    }
    assert {name.decode() for name in found} - INVENTORY.keys() == set()


def test_the_example_has_every_variable_of_a_user_once_and_as_a_comment() -> None:
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert re.findall(r"^#([A-Z_]+)=", text, re.MULTILINE) == [one.name for group in USERS.values() for one in group]
    assert [line for line in text.splitlines() if line and not line.startswith("#")] == []


def test_a_shell_loads_the_example_once_a_value_is_set(tmp_path: Path) -> None:
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    (tmp_path / ".env").write_text(re.sub(r"^#(?=[A-Z_]+=)", "", text, flags=re.MULTILINE))
    loading = ["sh", "-ec", "set -a; . ./.env; set +a; echo $RTP_EXPERIMENT"]
    assert subprocess.run(loading, cwd=tmp_path, capture_output=True, text=True, check=True).stdout == (
        "ray-train-platform\n"
    )
