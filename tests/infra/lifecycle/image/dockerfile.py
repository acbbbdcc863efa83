"""A Dockerfile as data: its stages, and the instructions of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Instruction(NamedTuple):
    """One instruction, continuation lines joined; `value` follows the keyword."""

    keyword: str
    value: str


class Stage(NamedTuple):
    """A stage: its base, and its instructions."""

    name: str
    base: str
    instructions: tuple[Instruction, ...]

    def values(self, keyword: str) -> list[str]:
        """Values of all instructions of a kind."""
        return [one.value for one in self.instructions if one.keyword == keyword]


class Dockerfile(NamedTuple):
    """A Dockerfile: the arguments before the first stage, and the stages by name."""

    arguments: tuple[str, ...]
    stages: dict[str, Stage]

    def lineage(self, name: str) -> Iterator[Stage]:
        """A stage and its base stages, itself first."""
        while name in self.stages:
            yield self.stages[name]
            name = self.stages[name].base

    def sources(self) -> list[str]:
        """Sources copied from the build context, in all stages."""
        copied = [value.split() for stage in self.stages.values() for value in stage.values("COPY")]
        return [source for words in copied if not words[0].startswith("--from=") for source in words[:-1]]


def read(path: Path) -> Dockerfile:
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\s*\\\n\s*", " ", text).splitlines()
    instructions = [Instruction(*line.split(maxsplit=1)) for line in lines if line.strip()]
    starts = [index for index, one in enumerate(instructions) if one.keyword == "FROM"]
    stages = {}
    for start, end in zip(starts, [*starts[1:], len(instructions)], strict=True):
        base, _, name = instructions[start].value.split()
        stages[name] = Stage(name, base, tuple(instructions[start + 1 : end]))
    arguments = tuple(one.value for one in instructions[: starts[0]] if one.keyword == "ARG")
    return Dockerfile(arguments, stages)
