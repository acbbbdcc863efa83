"""Lets MkDocs build the site from the documents as GitHub shows them.

The documents of the top level become pages, anchors are GitHub's, lists are indented as Python-Markdown reads them, and the marks of
commands (tests/docs/commands) become visible.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

from tests.docs.commands.found import MARK
from tests.docs.commands.needs import REASONS

ROOT = Path(__file__).resolve().parents[2]
TOP_LEVEL = {
    "README.md": "README.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "LICENSE": "LICENSE.md",
}
"""Page of each document of the top level."""

_ITEM = re.compile(r"(?:[*-]|\d+\.) +")
_LINK = re.compile(
    r"\[(?P<text>[^\]]*)\]\((?P<path>(?:\.\./|docs/)[\w./-]+|CONTRIBUTING\.md|LICENSE)(?P<anchor>#[^)\s]*)?\)"
)
_INDENT = 4
"""Columns by which Python-Markdown indents what belongs to an item."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give headings the anchors that GitHub gives them."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents of the top level."""
    for name, page in TOP_LEVEL.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        content = text if name.endswith(".md") else f"# {name.capitalize()}\n\n```text\n{text}```\n"
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Write a page as Python-Markdown reads it."""
    shown = MARK.sub(_needs, markdown)
    linked = _LINK.sub(lambda link: _linked(page.file.src_uri, link), shown)
    return "\n".join(indented(linked.splitlines()))


def _needs(mark: re.Match[str]) -> str:
    texts = [REASONS[name].text for name in mark[1].split(", ")]
    return f"*Some of these commands need {'; '.join(texts)}.*"


def _linked(page: str, link: re.Match[str]) -> str:
    """A link of a page to a file of the repository: to its page, or no link where the site does not have the file."""
    folder = ROOT if page in TOP_LEVEL.values() else (ROOT / "docs" / page).parent
    path = (folder / link["path"]).resolve().relative_to(ROOT).as_posix()
    target = path.removeprefix("docs/") if path.startswith("docs/") else TOP_LEVEL.get(path)
    return f"[{link['text']}]({'../' * page.count('/')}{target}{link['anchor'] or ''})" if target else link["text"]


def indented(lines: list[str]) -> Iterator[str]:
    """Indent what belongs to an item of a list by four columns per level, and separate items from the text before.

    GitHub takes the width of the item's marker, and needs no empty line.
    """
    items, is_fenced, may_continue = list[int](), False, True
    for line in lines:
        bare = line.lstrip()
        indent = len(line) - len(bare)
        while bare and items and indent < items[-1] and not is_fenced:
            items.pop()
        extra = indent - (items[-1] if items else 0)
        marker = None if is_fenced or extra >= _INDENT else _ITEM.match(bare)
        if marker and not may_continue:
            yield ""
        yield f"{' ' * (_INDENT * len(items) + extra)}{bare}" if bare else ""
        is_fenced ^= bare.startswith("```")
        if marker:
            items.append(indent + len(marker[0]))
        may_continue = not bare or marker is not None
