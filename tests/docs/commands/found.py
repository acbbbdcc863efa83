"""Finds the commands in the code blocks of the documents, and the marks that say what they need.

A mark is an HTML comment, `<!-- needs: cluster, files -->`. It holds in the section of the heading above it and in the sections below that
one: under the title of a document it holds for all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from shutil import which
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = (
    "apt-get",
    "aws",
    "docker",
    "eval",
    "export",
    "gh",
    "git",
    "kubectl",
    "make",
    "pip",
    "printf",
    "promtool",
    "pulumi",
    "python",
    "ray",
    "rtp",
    "tail",
    "timeout",
    ".ci/",
    ".venv/bin/",
)
"""What a command begins with; a program that ends in a slash is a folder of programs."""

SHELLS = ("", "sh", "bash", "shell", "console")
"""Languages of fenced blocks with commands."""

MARK = re.compile(r"^<!-- needs: (.*) -->$", re.MULTILINE)
"""A mark; its reasons are separated by commas."""

_HEADING = re.compile(r"(#+) (.*)")
_ASSIGNMENTS = re.compile(r"(?:[A-Z_]+=\S*( |$))*")


@dataclass
class Mark:
    """A mark of a document.

    Attributes:
        where: file and line.
        reasons: what it names.
        level: level of its section's heading.
        commands: the commands in its section.
    """

    where: str
    reasons: tuple[str, ...]
    level: int
    commands: list[Command] = field(default_factory=list, repr=False)


class Command(NamedTuple):
    """A command of a document.

    Attributes:
        where: file and line.
        text: as the document has it, without the comment behind it; lines that continue are joined.
        marked: reasons of the marks that hold for it.
    """

    where: str
    text: str
    marked: frozenset[str]

    @property
    def document(self) -> str:
        """The file, as a path from the root."""
        return self.where.partition(":")[0]


class Line(NamedTuple):
    """A line in a code block, with its number in the document."""

    number: int
    text: str


def documents() -> list[Path]:
    """The documents that people write; `make reference` writes the others."""
    return [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md")), *sorted((ROOT / "docs").glob("*.md"))]


@cache
def contents() -> tuple[tuple[Command, ...], tuple[Mark, ...]]:
    """The commands and the marks of all documents, in order."""
    found = [read(file.read_text(encoding="utf-8"), str(file.relative_to(ROOT))) for file in documents()]
    return tuple(one for commands, _ in found for one in commands), tuple(one for _, marks in found for one in marks)


def commands() -> tuple[Command, ...]:
    """The commands of all documents, in order."""
    return contents()[0]


def read(text: str, name: str) -> tuple[list[Command], list[Mark]]:
    """The commands and the marks of a document."""
    found, marks, open_marks, level = list[Command](), list[Mark](), list[Mark](), 0
    for part in _parts(text):
        if isinstance(part, Line):
            if heading := _HEADING.fullmatch(part.text):
                level = len(heading[1])
                open_marks = [mark for mark in open_marks if mark.level < level]
            elif comment := MARK.fullmatch(part.text.strip()):
                open_marks.append(Mark(f"{name}:{part.number}", tuple(comment[1].split(", ")), level))
                marks.append(open_marks[-1])
            continue
        marked = frozenset(reason for mark in open_marks for reason in mark.reasons)
        for number, command in _commands(part):
            found.append(Command(f"{name}:{number}", command, marked))
            for mark in open_marks:
                mark.commands.append(found[-1])
    return found, marks


def overlooked(text: str) -> Iterator[str]:
    """Lines that look like commands and are not found: no program of `PROGRAMS` begins them, or Markdown does not take them for code.

    A block with one command has only commands. Of another block it is the programs of this machine that tell. Indented lines below the
    text of a list belong to that text.
    """
    for part in _parts(text):
        if isinstance(part, Line):
            if part.text.startswith(" " * 4) and _is_command(part.text.strip()):
                yield part.text
        else:
            lines = [line.text for line in _joined(part) if line.text]
            others = [line for line in lines if not _is_command(line)]
            yield from (line for line in others if len(others) < len(lines) or which(line.partition(" ")[0]))


def _parts(text: str) -> Iterator[Line | list[Line]]:
    """The lines of a text, and its blocks of code: fenced as a shell's, or indented."""
    fence: str | None = None
    block: list[Line] = []
    indent = 0
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        bare = line.strip()
        if fence is not None:
            if bare == "```":
                if fence in SHELLS:
                    yield block
                fence, block = None, []
            else:
                block.append(Line(number, line))
        elif bare.startswith("```"):
            fence = bare.removeprefix("```")
        elif bare and _indent(line) >= indent + 4:
            block.append(Line(number, line))
        else:
            if block:
                yield block
                block = []
            if bare:
                # Text of a list is indented, and its code four columns more.
                indent = _indent(line) + (len(item[0]) if (item := re.match(r"(\d+\.|[*-]) +", bare)) else 0)
            yield Line(number, line)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _commands(block: list[Line]) -> Iterator[Line]:
    yield from (line for line in _joined(block) if _is_command(line.text))


def _joined(block: list[Line]) -> Iterator[Line]:
    """The lines without comments; those that a backslash or a pipe continues are joined."""
    number, text = 0, ""
    for line in block:
        number, text = (number, f"{text} {line.text.strip()}") if text else (line.number, line.text.strip())
        text = re.sub(r"(^| +)# .*", "", text)
        if text.endswith("\\"):
            text = text.removesuffix("\\").rstrip()
        elif not text.endswith("|"):
            yield Line(number, text)
            text = ""


def _is_command(text: str) -> bool:
    first = _ASSIGNMENTS.sub("", text, count=1).partition(" ")[0]
    if not first:
        return bool(text)
    return any(first.startswith(one) if one.endswith("/") else first == one for one in PROGRAMS)
