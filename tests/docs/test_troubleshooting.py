"""docs/TROUBLESHOOTING.md: every error class has an entry, which says what to do."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from infra.spec.errors import PlatformError
from tests.docs.workflows import ROOT

TEXT = (ROOT / "docs" / "TROUBLESHOOTING.md").read_text(encoding="utf-8")
PACKAGES = ("infra", "observability", "platform_charts", "training", "tune")
STAND_ALONE = "platform_charts.images"
"""Programs of images, which cannot import the platform's errors."""


class Entry(NamedTuple):
    """An entry of the document.

    Attributes:
        title: its heading.
        body: the text below.
    """

    title: str
    body: str

    @property
    def is_upstream(self) -> bool:
        """Whether the heading quotes other software."""
        return self.body.lstrip().startswith("*Upstream*")

    @property
    def error(self) -> str:
        """The class that the entry begins with; empty if it begins with none."""
        found = re.match(r"`(\w+)`", self.body.lstrip())
        return found[1] if found else ""


def entries() -> list[Entry]:
    """The entries of the document, in order."""
    parts = re.split(r"^#{2,3} (.*)$", TEXT, flags=re.MULTILINE)[1:]
    return [Entry(*pair) for pair in zip(parts[::2], parts[1::2], strict=True) if pair[1].strip() and "**" in pair[1]]


ENTRIES = entries()


def bases(path: Path) -> Iterator[tuple[str, set[str]]]:
    """The classes of a module, each with the names of its bases."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            yield node.name, {base.id for base in node.bases if isinstance(base, ast.Name)}


@cache
def error_classes() -> dict[str, type[PlatformError]]:
    """The platform's error and all that derive from it, imported from the modules whose source defines a class with such a base."""
    defined = {path: dict(bases(path)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    names: set[str] = {PlatformError.__name__}
    while found := {
        name for classes in defined.values() for name, above in classes.items() if above & names and name not in names
    }:
        names |= found
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path, classes in defined.items()
        if names & set(classes)
    }
    known: dict[str, type[PlatformError]] = {}
    for module in sorted(one for one in modules if not one.startswith(STAND_ALONE)):
        members = vars(importlib.import_module(module)).values()
        known |= {one.__name__: one for one in members if isinstance(one, type) and issubclass(one, PlatformError)}
    return known


def test_every_error_class_has_an_entry_with_its_exit_status() -> None:
    assert set(error_classes()) - {entry.error for entry in ENTRIES} == set()
    for entry in ENTRIES:
        if entry.error:
            status = error_classes()[entry.error].status
            assert f"`{entry.error}`, exit status {status.value}" in entry.body, entry.title


def test_every_entry_says_what_to_do_and_an_upstream_one_what_the_platform_does_about_it() -> None:
    assert [entry.title for entry in ENTRIES if "**Do.**" not in entry.body] == []
    silent = [entry.title for entry in ENTRIES if entry.is_upstream and "**Here.**" not in entry.body]
    assert silent == ["`make: *** […] Error …`"]
