"""`make docs`: a site of all documents that needs no other server, with a search."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.site.hooks import TOP_LEVEL, indented
from tests.docs.commands.found import ROOT, documents

LOADED = re.compile(
    r"""<(?:script|img|iframe|source|audio|video|embed)\b[^>]*\b(?:src|srcset)="?(?:https?:)?//
    |<link\b(?![^>]*rel="?canonical)[^>]*\bhref="?(?:https?:)?//
    |url\(\s*['"]?(?:https?:)?//
    |@import\s+['"](?:https?:)?//""",
    re.VERBOSE,
)
"""What a browser would load from another server."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


def pages(site: Path) -> dict[str, str]:
    """The pages, by path."""
    return {str(file.relative_to(site)): file.read_text(encoding="utf-8") for file in site.rglob("*.html")}


def test_every_document_is_a_page(site: Path) -> None:
    reference = {f"reference/{file.stem}.html" for file in (ROOT / "docs" / "reference").glob("*.md")}
    top = {f"{Path(name).stem}.html" for name in TOP_LEVEL} - {"README.html"}
    others = {f"{file.stem}.html" for file in documents()} - {"README.html"}
    assert {*pages(site)} == {"index.html", "404.html", *top, *others, *reference}


def test_nothing_is_loaded_from_another_server(site: Path) -> None:
    styles = {str(file.relative_to(site)): file.read_text(encoding="utf-8") for file in site.rglob("*.css")}
    assert styles
    loading = {name: found[0] for name, text in {**pages(site), **styles}.items() if (found := LOADED.search(text))}
    assert loading == {}


def test_the_search_finds_every_page(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {*pages(site)} - {"404.html"} <= found


def test_what_belongs_to_an_item_is_indented_by_four_columns() -> None:
    text = """Steps:
1. One:

       make train

   more
2. Two
   * inner
     text
   * another

after

    make jobs
"""
    wanted = """Steps:

1. One:

        make train

    more

2. Two
    * inner
        text

    * another

after

    make jobs
"""
    assert "\n".join(indented(text.splitlines())) + "\n" == wanted


def test_a_fenced_block_of_an_item_moves_as_a_whole() -> None:
    assert [*indented(["* item", "", "  ```sh", "  a", "    * b", "  ```", "next"])] == [
        *("* item", "", "    ```sh", "    a", "      * b", "    ```", "next"),
    ]
