"""docs/TROUBLESHOOTING.md: every error class has an entry, and what it quotes and says to type exists."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from infra.spec.errors import PlatformError
from tests.docs.make_commands import make_commands, problems_of
from tests.docs.messages import PACKAGES, ROOT, is_said

DOCUMENT = ROOT / "docs" / "TROUBLESHOOTING.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
STAND_ALONE = "platform_charts.images"
"""Programs of images, which cannot import the platform's errors."""

OF_TORCH = ("CUDA out of memory",)
"""Quoted beside a message of ours."""

_CODE = re.compile(r"(`{1,2})(.+?)\1(?!`)")


class Entry(NamedTuple):
    """An entry of the document.

    Attributes:
        title: its heading.
        body: the text below.
    """

    title: str
    body: str

    @property
    def quoted(self) -> list[str]:
        """What the heading quotes."""
        return [found[2].strip() for found in _CODE.finditer(self.title)]

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
QUOTED = [text for entry in ENTRIES if not entry.is_upstream for text in entry.quoted if text not in OF_TORCH]
COMMANDS = make_commands(TEXT)


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


def test_every_error_class_has_an_entry() -> None:
    assert set(error_classes()) - {entry.error for entry in ENTRIES} == set()


def test_entries_name_error_classes_that_exist_with_their_exit_status() -> None:
    for entry in ENTRIES:
        if entry.error:
            status = error_classes()[entry.error].status
            assert f"`{entry.error}`, exit status {status.value}" in entry.body, entry.title


@pytest.mark.parametrize("quotation", QUOTED)
def test_a_message_of_ours_is_in_the_source(quotation: str) -> None:
    assert is_said(quotation)


def test_a_quotation_that_no_message_has_is_found_out() -> None:
    assert not is_said("run … is driven already by process …")


@pytest.mark.parametrize("typed", COMMANDS)
def test_a_make_command_has_a_target_and_variables_with_an_effect(typed: str) -> None:
    assert list(problems_of(typed)) == []


@pytest.mark.parametrize("typed", ["make tran", "make train WORKER=2", "make monitor NAME=a EPOCHS=2"])
def test_a_wrong_make_command_is_found_out(typed: str) -> None:
    assert list(problems_of(typed))


def test_every_entry_says_what_to_do() -> None:
    assert [entry.title for entry in ENTRIES if "**Do.**" not in entry.body] == []


def test_every_upstream_entry_says_what_this_platform_does_about_it() -> None:
    silent = [entry.title for entry in ENTRIES if entry.is_upstream and "**Here.**" not in entry.body]
    assert silent == ["`make: *** […] Error …`"]
