"""Checks the make commands of a document against the Makefile."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from tests.deployment_guide import commands_in
from tests.makefile import last_command, make

_EXPORTED = ("PYTHON=", "TORCH_INDEX=", "TORCH_VERSION=")
"""Variables that a command finds in its environment (`unexport` in the Makefile leaves them out)."""


def make_commands(text: str) -> list[str]:
    """The make commands of a document, each once; those that name only a target in passing, too."""
    return sorted({one for one in commands_in(text) if one.startswith("make ")})


def problems_of(typed: str) -> Iterator[str]:
    """What is wrong with a make command: no such target or variable, or a variable that has no effect on the target."""
    words = [word for word in shlex.split(typed)[1:] if word != "…"]
    planned = make("--dry-run", *words)
    if planned.returncode:
        yield planned.stderr.strip()
        return
    for word in words[1:]:
        if word.startswith(_EXPORTED):
            continue
        rest = [other for other in words if other != word]
        without = make("--dry-run", *rest)
        # Without it, make may refuse another one.
        if without.returncode == 0 and last_command(without) == last_command(planned):
            yield f"{word} has no effect"
