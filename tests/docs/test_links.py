"""The links of the documents lead to files and headings that exist, as GitHub shows them."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.commands.found import ROOT, documents

_LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_files_and_headings_that_exist() -> None:
    written = [*documents(), ROOT / "CHANGELOG.md", *(ROOT / "docs" / "reference").glob("*.md")]
    broken = []
    for document in written:
        prose = re.sub(r"`[^`\n]*`(?!\])", "", document.read_text(encoding="utf-8"))
        for link in _LINK.findall(prose):
            name, _, anchor = link.partition("#")
            target = (document.parent / name).resolve() if name else document
            if "://" not in link and (not target.exists() or (anchor and anchor not in anchors(target))):
                broken.append(f"{document.name}: {link}")
    assert broken == []
