"""Markdown that renders the same everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; empty if it has no rows. Columns that are empty in every row are left out."""
    cells = [tuple(map(_cell, row)) for row in rows]
    shown = [number for number in range(len(head)) if any(row[number] for row in cells)]
    lines = [_line([head[number] for number in shown]), _line(["---"] * len(shown))]
    lines += [_line([row[number] for number in shown]) for row in cells]
    return "\n".join(lines) if cells else ""


def code(text: object) -> str:
    """A literal; empty for an empty text."""
    return f"`{text}`" if str(text) else ""


def page(title: str, *parts: str) -> str:
    """A page of parts, without those that are empty."""
    notice = "<!-- Written by `make reference` from the code; edit the code instead. -->"
    return "\n\n".join(filter(None, [f"# {title}", notice, *parts])) + "\n"


def section(title: str, *parts: str, level: int = 2) -> str:
    """A heading and what is below it; empty if nothing is."""
    below = [part for part in parts if part]
    return "\n\n".join([f"{'#' * level} {title}", *below]) if below else ""


def sentence(text: str) -> str:
    """A phrase as a sentence: with a capital letter unless it begins with a name, and a full stop."""
    text = text.strip()
    first = text.split(" ", 1)[0].rstrip(",;:")
    start = text[:1].upper() if first.isalpha() and first.islower() else text[:1]
    return start + text[1:] + ("" if text.endswith((".", "!", "?")) else ".") if text else ""


def _cell(text: str) -> str:
    """Text of one line in which no character ends the cell or begins a tag outside of a literal."""
    line = " ".join(text.split()).replace("|", r"\|")
    return "`".join(part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(line.split("`")))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
