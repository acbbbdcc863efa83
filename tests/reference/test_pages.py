"""The committed reference is what the code makes, and has every program, option, setting and field, each with its meaning."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.makefile import make
from tests.reference import make_targets, programs
from tests.reference.options import actions_of, subparsers
from tests.reference.pages import FOLDER, ROOT, files, written
from tests.test_conventions import modules

WRITE = "run `make reference`"
LONGEST_PAGE = 1500
OUR_PROGRAMS = ("infra/", "platform_charts/", "training/", "tune/", "observability/")


@pytest.fixture(scope="module")
def made() -> dict[Path, str]:
    return files()


def test_the_committed_files_are_what_the_code_makes(made: dict[Path, str]) -> None:
    assert set(written()) == set(made), WRITE
    changed = [str(path) for path, text in made.items() if (ROOT / path).read_text(encoding="utf-8") != text]
    assert changed == [], WRITE


def test_the_pages_are_made_equal_twice(made: dict[Path, str]) -> None:
    assert files() == made


def test_no_page_is_too_long_to_read(made: dict[Path, str]) -> None:
    assert {str(path): text.count("\n") for path, text in made.items() if text.count("\n") > LONGEST_PAGE} == {}


def test_every_link_leads_to_a_file_and_a_heading(made: dict[Path, str]) -> None:
    for path, text in made.items():
        prose = re.sub(r"`[^`\n]*`(?!\])", "", text)
        for target, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", prose):
            linked = (ROOT / path).parent / target if target else ROOT / path
            assert linked.is_file(), f"{path} links {target}"
            headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
            assert not anchor or anchor in anchors, f"{path} links #{anchor}"


def test_every_row_has_the_cells_of_its_head(made: dict[Path, str]) -> None:
    for path, text in made.items():
        for rows in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
            cells = {len(re.findall(r"(?<!\\)\|", row)) for row in rows.splitlines()}
            assert len(cells) == 1, f"{path}: {rows[:100]}"


def test_every_setting_field_and_option_has_a_meaning(made: dict[Path, str]) -> None:
    settings = [FOLDER / f"{name}-settings.md" for name in ("training", "search", "environment")]
    for path in [*settings, FOLDER / "events.md", FOLDER / "metrics.md"]:
        without = [line for line in made[path].splitlines() if re.match(r"\| `[^|]*\|", line) and line.endswith("|  |")]
        assert without == [], path
    assert "| field | type | default |\n" not in made[FOLDER / "events.md"]


def test_the_commands_of_make_are_those_of_its_help() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    helped = make("help")
    assert helped.returncode == 0, helped.stderr
    names = [line.split()[0] for line in helped.stdout.splitlines() if line.startswith("  ")]
    assert [target.name for target in make_targets.targets(text)] == names


def test_a_command_of_make_takes_the_variables_of_the_definitions_that_it_uses() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = make_targets.variables(text)
    used = {target.name: make_targets.used(target, known) for target in make_targets.targets(text)}
    assert used["verify"] == ("NAME", "ARGS")
    assert {"MODEL", "SET", "ENV", "TEAM", "GROUP", "SCHEDULE"} <= set(used["train"])
    assert {name for names in used.values() for name in names} | {"PYTHON", "TORCH_INDEX", "TORCH_VERSION"} == set(
        known
    )


def test_every_program_is_documented_or_internal() -> None:
    listed = {one.module for group in (programs.BENCHMARKS, programs.TOOLS, programs.IMAGES) for one in group}
    listed |= programs.COMMAND_LINES.keys() | programs.WRITERS.keys() | programs.INTERNAL.keys()
    assert listed == set(programs_of_files())


def programs_of_files() -> Iterator[str]:
    """Every module that `python -m` runs."""
    for name, tree in modules().items():
        if not name.startswith(OUR_PROGRAMS) or "/project_template/" in name:
            continue
        has_main = any("__name__" in {getattr(one, "id", "") for one in _names(node)} for node in tree.body)
        if has_main or name.endswith("/__main__.py"):
            yield name.removesuffix(".py").removesuffix("/__main__").replace("/", ".")


def _names(node: object) -> list[object]:
    test = getattr(node, "test", None)
    return [test, getattr(test, "left", None)]


def parsers() -> Iterator[argparse.ArgumentParser]:
    """The parser of every program, and of each of its commands."""
    made = [programs.command_line(name).parser() for name in programs.COMMAND_LINES]
    made += [one.make() for group in (programs.BENCHMARKS, programs.TOOLS, programs.IMAGES) for one in group]
    for parser in made:
        yield parser
        yield from subparsers(parser).values()


def test_every_option_has_help() -> None:
    without = [
        f"{parser.prog} {name}"
        for parser in parsers()
        for name, action in actions_of(parser).items()
        if not action.help and not isinstance(action, argparse._SubParsersAction)
    ]
    assert without == []


def test_the_reference_is_made_without_what_takes_long_to_import() -> None:
    program = "import sys; from tests.reference.pages import files; files(); print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy = {"torch", "ray", "mlflow", "matplotlib", "pandas", "pulumi"}
    assert heavy & set(ended.stdout.split()) == set()
