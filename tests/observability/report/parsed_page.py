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


def assert_is_self_contained(page: Page) -> None:
    """A page refers to nothing but itself, its ids are unique, and its colours are defined for light and dark mode."""
    assert [reference for reference in page.references if not reference.startswith("#")] == []
    assert re.findall(r"url\((?!#)|@import", page.html) == []
    assert page.tags["script"] == page.tags["link"] == page.tags["img"] == 0
    assert [key for key, count in Counter(page.ids).items() if count > 1] == []
    targets = {*page.references, *(f"#{key}" for key in re.findall(r"url\(#([^)]*)\)", page.html))}
    assert targets <= {f"#{key}" for key in page.ids}
    assert [drawing for drawing in page.drawings if re.search(r"#[0-9a-f]{6}\b(?![0-9a-f])", drawing)] == []
    used = set(re.findall(r"var\((--[\w-]+)\)", page.html))
    assert {variable for variable in used if page.html.count(f"{variable}: #") != 2} == set()
