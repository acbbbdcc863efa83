"""The links of the documents lead to files and headings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.commands.found import ROOT, documents

README = ROOT / "README.md"
DOCUMENTS = [*documents(), ROOT / "CHANGELOG.md"]

_LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files_and_headings_that_exist(document: Path) -> None:
    broken = []
    for link in _LINK.findall(document.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("document", ["TUTORIAL.md", "TROUBLESHOOTING.md", "GPU_OPTIMIZATION.md", "CI.md"])
def test_the_readme_links_the_document(document: str) -> None:
    assert f"(docs/{document})" in README.read_text(encoding="utf-8")
