"""docs/TROUBLESHOOTING.md: every error class has an entry."""

from __future__ import annotations

import importlib
import re
from functools import cache
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
    def error(self) -> str:
        """The class that the entry begins with; empty if it begins with none."""
        found = re.match(r"`(\w+)`", self.body.lstrip())
        return found[1] if found else ""


def entries() -> list[Entry]:
    """The entries of the document, in order."""
    parts = re.split(r"^#{2,3} (.*)$", TEXT, flags=re.MULTILINE)[1:]
    return [Entry(*pair) for pair in zip(parts[::2], parts[1::2], strict=True) if pair[1].strip() and "**" in pair[1]]


ENTRIES = entries()
_ERROR = re.compile(r"^class \w+\(\w*Error\b", re.MULTILINE)


@cache
def error_classes() -> dict[str, type[PlatformError]]:
    """The platform's error and all that derive from it, imported from the modules that define an error."""
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    names = (
        ".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files if _ERROR.search(file.read_text())
    )
    for name in sorted(names):
        if not name.startswith(STAND_ALONE):
            importlib.import_module(name)
    found = [PlatformError]
    for one in found:
        found += one.__subclasses__()
    return {one.__name__: one for one in found if one.__module__.startswith(PACKAGES)}


def test_every_error_class_has_an_entry_with_its_exit_status() -> None:
    assert set(error_classes()) - {entry.error for entry in ENTRIES} == set()
    for entry in ENTRIES:
        if entry.error:
            status = error_classes()[entry.error].status
            assert f"`{entry.error}`, exit status {status.value}" in entry.body, entry.title
