"""Finds the messages of the source, with an ellipsis for what is not literal."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("infra", "observability", "platform_charts", "training", "tune")
ELLIPSIS = "…"
_FEWEST = 12
"""Literal characters of a quotation at the least; fewer would be found anywhere."""


@cache
def messages() -> frozenset[str]:
    """Every text of the source: literals, f-strings with an ellipsis for each value, and lines of the Makefile and its scripts."""
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    scripts = (ROOT / "Makefile", *(ROOT / ".make").iterdir())
    lines = {line for path in scripts for line in path.read_text(encoding="utf-8").splitlines()}
    return frozenset(lines | {text for path in files for text in _texts(ast.parse(path.read_text(encoding="utf-8")))})


def is_said(quotation: str) -> bool:
    """Whether a message of the source has the literal parts of a quotation, in order, with values in between."""
    parts = [part.strip() for part in quotation.split(ELLIPSIS)]
    assert sum(map(len, parts)) >= _FEWEST, f"{quotation}: too short to be found"
    pattern = re.compile(".*".join(re.escape(part) for part in parts), re.DOTALL)
    return any(pattern.search(message) for message in messages())


def _texts(tree: ast.Module) -> Iterator[str]:
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else ELLIPSIS for one in node.values)
