"""A report as its reader gets it."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser


class Page(HTMLParser):
    """The text, ids, references and tags of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.references: list[str] = []
        self.ids: list[str] = []
        self.tags: Counter[str] = Counter()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            if name in {"src", "href", "xlink:href", "srcset", "action", "data"}:
                self.references.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def drawings(self) -> list[str]:
        """The `<svg>` elements."""
        return re.findall(r"<svg.*?</svg>", self.html, re.DOTALL)
