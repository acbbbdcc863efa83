"""Finds the commands of the documents, and the marks that say what they need.

A mark is an HTML comment, `<!-- needs: cluster, files -->`. It holds for the section of the heading above it and for those below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = (
    "aws",
    "docker",
    "gh",
    "git",
    "kubectl",
    "make",
    "pulumi",
    "python",
    "rtp",
    "tail",
    "timeout",
    ".ci/",
    ".venv/bin/",
)
"""What a command begins with; a program that ends in a slash is a folder of programs."""

MARK = re.compile(r"^<!-- needs: (.*) -->$", re.MULTILINE)
"""A mark; its reasons are separated by commas."""

_SHELLS = ("", "sh", "bash", "shell", "console")
_ASSIGNMENTS = re.compile(r"(?:[A-Z_]+=\S*( |$))*")
_INLINE = re.compile(r"`(make [^`]+)`")


def documents() -> list[Path]:
    """The documents that people write; `make reference` writes the others."""
    return [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md")), *sorted((ROOT / "docs").glob("*.md"))]


def commands(file: Path) -> list[str]:
    """The commands in the code blocks of a document, in order, without comments; lines that continue are joined."""
    return [text for text in _joined(_code(file.read_text(encoding="utf-8"))) if _is_command(text)]


def mentioned(file: Path) -> list[str]:
    """The commands of make in the text of a document."""
    prose = "\n".join(line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("    "))
    return [" ".join(span.split()) for span in _INLINE.findall(prose)]


def _code(text: str) -> Iterator[str]:
    """The lines of the blocks of code: fenced as a shell's, or indented."""
    fence: str | None = None
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("```"):
            fence = bare.removeprefix("```") if fence is None else None
        elif (fence is None and line.startswith("    ")) or fence in _SHELLS:
            yield bare


def _joined(lines: Iterator[str]) -> Iterator[str]:
    begun = ""
    for line in lines:
        text = re.sub(r"(^| +)# .*", "", f"{begun} {line}".strip())
        begun = text.removesuffix("\\").rstrip() if text.endswith(("\\", "|")) else ""
        if not begun:
            yield text


def _is_command(text: str) -> bool:
    first = _ASSIGNMENTS.sub("", text, count=1).partition(" ")[0]
    return any(first.startswith(one) if one.endswith("/") else first == one for one in PROGRAMS)
