"""The pages of the Python programs."""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from typing import Final

from infra.spec.command_line import Command, CommandLine, declaring_class
from tests.reference import programs
from tests.reference.markdown import code, page, section, sentence, table
from tests.reference.options import actions_of, help_of, options_table, subparsers
from tests.reference.programs import Program

MAIN: Final = ("training", "tune", "infra.lifecycle")
"""The programs that users call, each with a page of its own."""

_INTRODUCTION: Final = (
    "`make` calls these commands; [Commands of make](make.md) says with which options. `{program} COMMAND --help` prints the same as here. "
    "Options that several commands have are listed once, under [Shared options](#shared-options)."
)


def program_page(program: str) -> str:
    """The page of a program with commands."""
    commands = programs.command_line(program)
    shared = _shared(commands.commands)
    parts = [_INTRODUCTION.format(program=commands.program)]
    parsers = subparsers(commands.parser())
    for heading in dict.fromkeys(command.heading for command in commands.commands):
        here = [command for command in commands.commands if command.heading == heading]
        below = [_command(command, parsers[command.name], shared) for command in here]
        parts.append(section(heading[:1].upper() + heading[1:], *below))
    parts.append(_shared_section(commands, shared))
    return page(commands.program, sentence(commands.summary), *parts)


def other_programs_page() -> str:
    """The page of the programs that have no page of their own."""
    lines = [programs.command_line(name) for name in programs.COMMAND_LINES if name not in MAIN]
    return page(
        "Other Python programs",
        section("With commands", *map(_small_program, lines)),
        section("Benchmarks", *map(_program, programs.BENCHMARKS)),
        section("Tools of the trainer", *map(_program, programs.TOOLS)),
        section(
            "In our images", "Pods start these; their manifests have the options.", *map(_program, programs.IMAGES)
        ),
        section(
            "Programs that write a file of the repository",
            "For contributors, after a change of what they are made of. They have no options, and tests compare the files.",
            table(
                ("program", "writes"), ((code(f"python -m {name}"), text) for name, text in programs.WRITERS.items())
            ),
        ),
        section(
            "Programs that only the platform starts",
            table(("program", "started by"), ((code(name), text) for name, text in programs.INTERNAL.items())),
        ),
    )


def _shared(commands: Iterable[Command]) -> list[type]:
    """The classes whose options several commands have, the most frequent first."""
    counts = Counter(owner for command in commands for owner in _owners(command))
    return [owner for owner, count in counts.most_common() if count > 1]


def _owners(command: Command) -> list[type]:
    """The classes that declare a command's options, without repetition."""
    return list(dict.fromkeys(declaring_class(command.options, one.name) for one in fields(command.options)))


def _command(command: Command, parser: argparse.ArgumentParser, shared: list[type], *, level: int = 3) -> str:
    owners = [owner for owner in _owners(command) if owner in shared]
    also = ", ".join(f"[{_title(owner)}](#{_anchor(owner)})" for owner in owners)
    own = [
        action
        for name, action in _actions(command, parser).items()
        if declaring_class(command.options, name) not in shared
    ]
    return section(
        code(command.name), command.summary, options_table(own), f"Shared options: {also}." if also else "", level=level
    )


def _actions(command: Command, parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """The options of a command by field; one whose default the command computes shows none."""
    found = actions_of(parser)
    for one in fields(command.options):
        if one.default_factory is not MISSING:
            found[one.name].default = None
    return found


def _shared_section(commands: CommandLine, shared: list[type]) -> str:
    parsers = subparsers(commands.parser())
    parts = []
    for owner in shared:
        command = next(one for one in commands.commands if owner in _owners(one))
        found = _actions(command, parsers[command.name])
        own = [action for name, action in found.items() if declaring_class(command.options, name) is owner]
        having = ", ".join(code(one.name) for one in commands.commands if owner in _owners(one))
        summary = (owner.__doc__ or "").partition("\n")[0]
        parts.append(section(_title(owner), summary, options_table(own), f"Of {having}.", level=3))
    return section("Shared options", *parts)


def _title(owner: type) -> str:
    """`SubmissionOptions` is called `submission options`."""
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in owner.__name__).strip()
    return words[:1].upper() + words[1:]


def _anchor(owner: type) -> str:
    return _title(owner).lower().replace(" ", "-")


def _small_program(commands: CommandLine) -> str:
    parsers = subparsers(commands.parser())
    return section(
        code(commands.program),
        commands.summary,
        *(_command(command, parsers[command.name], [], level=4) for command in commands.commands),
        level=3,
    )


def _program(program: Program) -> str:
    parser = program.make()
    parts = list(_commands_of(parser)) or [options_table(actions_of(parser).values())]
    return section(code(f"python -m {program.module}"), _summary(parser), *parts, level=3)


def _commands_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    found = subparsers(parser)
    if not found:
        return
    yield table(("command", "what it does"), ((code(name), text) for name, text in help_of(parser)))
    for name, one in found.items():
        yield section(code(name), options_table(actions_of(one).values()), level=4)


def _summary(parser: argparse.ArgumentParser) -> str:
    """The first paragraph of a description, without the command that precedes or follows a colon."""
    first = " ".join((parser.description or "").strip().partition("\n\n")[0].split())
    return sentence(re.sub(r"^`python -m [\w.]+`: |: `python -m.*$", "", first))
