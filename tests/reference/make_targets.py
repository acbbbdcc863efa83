"""The page of make's commands, from the Makefile."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tests.reference.markdown import code, page, section, table

_HEADING: Final = re.compile(r"##@ (.*)")
_TARGET: Final = re.compile(r"([a-z-]+):[^=].*?## (.*)")
_RECIPE_OF: Final = re.compile(r"([a-z -]+):")
_DEFINITION: Final = re.compile(r"([a-z-]+) = (.*)")
_NAMES: Final = re.compile(r"\b[A-Z][A-Z_]*\b")
_PASSED: Final = re.compile(r"\$\(call options?,([A-Z_]+),(--[\w-]+)\)|is_typed,([A-Z_]+)\),(--[\w-]+)")

INTRODUCTION: Final = (
    "Variables are typed after the command, as in `make train SEED=1`; those of the environment have no effect, except `PYTHON`, "
    "`TORCH_VERSION` and `TORCH_INDEX`. A command refuses the variables that it does not take. `ARGS` takes any options of the "
    "Python command. make itself exits with 2 whenever a command fails, and prints the [exit status](exit-status.md) of the command."
)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A command of make.

    Attributes:
        name: its name.
        heading: the heading that `make help` lists it under.
        summary: what `make help` says of it.
        recipe: its commands, with the definitions that they use in the place of their names.
    """

    name: str
    heading: str
    summary: str
    recipe: str


def targets(text: str) -> tuple[Target, ...]:
    """The commands that `make help` lists.

    Args:
        text: of the Makefile.
    """
    lines = re.sub(r" *\\\n *", " ", text).splitlines()
    definitions = {match[1]: match[2] for line in lines if (match := _DEFINITION.fullmatch(line))}
    found: list[Target] = []
    heading = ""
    recipes = dict(_recipes(lines, definitions))
    for line in lines:
        if match := _HEADING.fullmatch(line):
            heading = match[1]
        elif match := _TARGET.fullmatch(line):
            found.append(Target(name=match[1], heading=heading, summary=match[2], recipe=recipes.get(match[1], "")))
    return tuple(found)


def variables(text: str) -> tuple[str, ...]:
    """The variables that may be typed, in the Makefile's order."""
    joined = re.sub(r" *\\\n *", " ", text)
    match = re.search(r"^variables := (.*)$", joined, re.MULTILINE)
    assert match is not None, "the Makefile lists its variables"
    return tuple(match[1].split())


def make_page(text: str) -> str:
    """The page; `text` is the Makefile's."""
    known, listed = variables(text), targets(text)
    parts = []
    for heading in dict.fromkeys(target.heading for target in listed):
        rows = [
            (code(f"make {target.name}"), target.summary, ", ".join(map(code, used(target, known))))
            for target in listed
            if target.heading == heading
        ]
        title, _, note = heading.partition(" (")
        note = f"{note[:1].upper()}{note[1:].removesuffix(')')}." if note else ""
        parts.append(section(title, note, table(("command", "what it does", "variables"), rows)))
    rows = [
        (code(name), ", ".join(map(code, _options(name, listed))), _commands(name, listed, known)) for name in known
    ]
    parts.append(section("Variables", table(("variable", "option", "commands"), rows)))
    return page("Commands of make", INTRODUCTION, *parts)


def used(target: Target, known: Sequence[str]) -> tuple[str, ...]:
    """The variables of a command, in the order of `known`."""
    names = set(_NAMES.findall(target.recipe))
    return tuple(name for name in known if name in names)


def _recipes(lines: Sequence[str], definitions: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The recipe of each target; a rule for several targets is each one's."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        if line.startswith("\t"):
            for name in current:
                found.setdefault(name, []).append(line.strip())
        elif match := _RECIPE_OF.match(line):
            current = match[1].split()
    yield from ((name, _expanded("\n".join(recipe), definitions)) for name, recipe in found.items())


def _expanded(text: str, definitions: dict[str, str]) -> str:
    """The text with definitions in the place of their names, also within other definitions."""
    while True:
        expanded = re.sub(r"\$\(([a-z-]+)\)", lambda match: definitions.get(match[1], ""), text)
        if expanded == text:
            return text
        text = expanded


def _options(name: str, listed: Sequence[Target]) -> tuple[str, ...]:
    """The options that a variable is passed as, over all commands."""
    passed = (match for target in listed for match in _PASSED.findall(target.recipe))
    return tuple(dict.fromkeys(one[1] or one[3] for one in passed if name in {one[0], one[2]}))


def _commands(name: str, listed: Sequence[Target], known: Sequence[str]) -> str:
    return ", ".join(target.name for target in listed if name in used(target, known))
