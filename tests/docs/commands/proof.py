"""What runs the commands that need nothing: other tests, or the tests of the documents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests import deployment_guide
from tests.docs.commands.found import Command, commands
from tests.docs.commands.needs import Words, needs, parse

ELSEWHERE: Mapping[str, str] = {
    "make env": "tests/test_environment_script.py",
    "make monitor-up": "tests/training/monitoring/test_monitor_up.py",
    "make tune-notebook": "tests/tune/test_notebook.py",
    "make wheel": "tests/packaging/test_wheel.py",
    "make sandbox": "tests/infra/lifecycle/sandbox/test_sandbox.py",
    "make sandbox-down": "tests/infra/lifecycle/sandbox/test_sandbox.py",
}
"""File with the tests of a command that the tests of the documents do not run, by program and target.

They install packages, start Kubernetes, or run until Ctrl-C with programs that not every machine has.
"""

SERVERS: Mapping[str, str] = {
    "make notebook": "http://127.0.0.1:",
    "make ui": "http://127.0.0.1:",
    ".venv/bin/jupyter lab": "http://",
}
"""What a command prints when it serves; it then gets Ctrl-C."""

STATUS: Mapping[str, int] = {
    "make release-check ENV=prod": 2,  # the release has entries that are not resolved yet, which prod refuses
    "timeout -s KILL 25 make train NAME=killed EPOCHS=300": 137,
}
"""Exit status of a command that does not end with 0."""

_QUICK = {
    "cost",
    "deployer-policy",
    "docs",
    "graph",
    "help",
    "job",
    "jobs",
    "new",
    "outputs",
    "ray-cluster",
    "release-check",
}
"""Targets that take seconds."""


class Step(NamedTuple):
    """A command that needs nothing.

    Attributes:
        command: the command.
        words: the same in words.
    """

    command: Command
    words: Words

    @property
    def subject(self) -> str:
        """Program and target, as in `ELSEWHERE`."""
        return f"{self.words.program} {self.words.target}".strip()

    @property
    def is_run_elsewhere(self) -> bool:
        """Whether other tests run it."""
        is_of_guide = self.command.document == "docs/DEPLOYMENT.md"
        return self.subject in ELSEWHERE or (is_of_guide and self.command.text in _OF_GUIDE)

    @property
    def is_quick(self) -> bool:
        """Whether it takes seconds; what trains or serves takes longer."""
        asks = re.fullmatch(r"--(help|print-config)", self.words.variables.get("ARGS", ""))
        return self.words.target in _QUICK or bool(asks) or self.words.program in {"", "export"}


_OF_GUIDE = {step.command for step in (*deployment_guide.WITHOUT_ACCOUNT, *deployment_guide.IN_THE_ENGINE)}


def in_words() -> Iterator[Step]:
    """Every command in words, in order."""
    document, earlier = "", list[Words]()
    for command in commands():
        if command.document != document:
            document, earlier = command.document, []
        words = parse(command.text, tuple(earlier))
        yield Step(command, words)
        if not needs(words):
            earlier.append(words._replace(earlier=()))


def steps() -> list[Step]:
    """The commands that need nothing and that no other test runs, in order."""
    return [step for step in in_words() if not needs(step.words) and not step.is_run_elsewhere]
