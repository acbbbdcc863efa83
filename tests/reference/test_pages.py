"""The committed reference is what the code makes, and has every program, option, setting and field with its meaning, and every variable."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from infra.spec.variables.internal import INTERNAL
from infra.spec.variables.inventory import INVENTORY
from infra.spec.variables.libraries import LIBRARIES
from infra.spec.variables.users import USERS
from tests.engines.checkouts import project_files
from tests.makefile import make
from tests.reference import make_targets, programs
from tests.reference.options import actions_of, subparsers
from tests.reference.pages import FOLDER, ROOT, files, written

WRITE = "run `make reference`"
OUR_PROGRAMS = ("infra/", "platform_charts/", "training/", "tune/", "observability/")


def test_the_committed_files_are_what_the_code_makes_with_a_meaning_for_everything() -> None:
    made = files()
    assert set(written()) == set(made), WRITE
    changed = [str(path) for path, text in made.items() if (ROOT / path).read_text(encoding="utf-8") != text]
    assert changed == [], WRITE
    settings = [FOLDER / f"{name}-settings.md" for name in ("training", "search", "environment")]
    for path in [*settings, FOLDER / "events.md", FOLDER / "metrics.md"]:
        without = [line for line in made[path].splitlines() if re.match(r"\| `[^|]*\|", line) and line.endswith("|  |")]
        assert without == [], path
    assert "| field | type | default |\n" not in made[FOLDER / "events.md"]


def test_the_page_of_make_has_the_commands_of_its_help_and_the_variables_that_their_definitions_use() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    helped, known = make("help"), make_targets.variables(text)
    assert helped.returncode == 0, helped.stderr
    names = [line.split()[0] for line in helped.stdout.splitlines() if line.startswith("  ")]
    used = {target.name: make_targets.used(target, known) for target in make_targets.targets(text)}
    assert [*used] == names
    assert used["verify"] == ("NAME", "ARGS")
    assert {"MODEL", "SET", "ENV", "TEAM", "GROUP", "SCHEDULE"} <= set(used["train"])
    assert {name for names in used.values() for name in names} | {"PYTHON", "TORCH_INDEX", "TORCH_VERSION"} == {*known}


def test_every_program_is_documented_or_internal() -> None:
    listed = {one.module for group in (programs.BENCHMARKS, programs.TOOLS, programs.IMAGES) for one in group}
    listed |= programs.COMMAND_LINES.keys() | programs.WRITERS.keys() | programs.INTERNAL.keys()
    assert listed == set(programs_of_files())


def programs_of_files() -> Iterator[str]:
    """Every module that `python -m` runs."""
    for name in project_files():
        if name.startswith(OUR_PROGRAMS) and name.endswith(".py") and "/project_template/" not in name:
            has_main = re.search("^if __name__ == ", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
            if has_main or name.endswith("/__main__.py"):
                yield name.removesuffix(".py").removesuffix("/__main__").replace("/", ".")


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


def test_each_variable_is_in_one_group_and_one_of_other_software_says_whose_it_is() -> None:
    names = [one.name for part in (USERS, INTERNAL, LIBRARIES) for group in part.values() for one in group]
    assert sorted(names) == sorted(INVENTORY)
    assert [one.name for group in LIBRARIES.values() for one in group if not one.library] == []


def test_the_inventory_has_every_name_of_ours_that_any_file_mentions_and_its_users_mention_it() -> None:
    texts = {file: (ROOT / file).read_bytes() for file in project_files() if not file.startswith("tests/")}
    found = {name.decode() for text in texts.values() for name in re.findall(rb"\bRTP_[A-Z_]*[A-Z]\b", text)}
    assert found - INVENTORY.keys() == set()
    inventory = "infra/spec/variables/"
    code = b"".join(text for file, text in texts.items() if not file.startswith((inventory, "docs/", ".env")))
    assert [name for name, one in INVENTORY.items() if name.startswith("RTP_") and name.encode() not in code] == []


def test_the_example_has_every_variable_of_a_user_once_and_as_a_comment() -> None:
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    assert re.findall(r"^#([A-Z_]+)=", text, re.MULTILINE) == [one.name for group in USERS.values() for one in group]
    assert [line for line in text.splitlines() if line and not line.startswith("#")] == []
