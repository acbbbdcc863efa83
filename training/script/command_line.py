"""The command line that a user wants to run, checked before anything starts."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath

from infra.spec.errors import SettingsError
from infra.spec.section import did_you_mean

SHELL = "bash"
"""Runs command lines, here and in pods: variables, quotes and `&&` mean what they mean in a terminal."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PLAIN_NAME = re.compile(r"[\w./+-]+")
_OPERATORS = "();<>|&"
_SCRIPTS = (".py", ".sh")
_NO_SCRIPT = frozenset({"-c", "-m", "--module", "--no-python"})
"""Options of python, bash and torchrun after which no script of that interpreter follows."""

_SHOWN = 8
_SHELL_SECONDS = 10.0


def check_syntax(text: str) -> None:
    """Refuse a command line that the shell cannot parse.

    Raises:
        SettingsError: it is empty, or a quote or bracket is left open.
    """
    if not text.strip():
        raise SettingsError("cmd is empty", remedy='give the command to run, e.g. CMD="torchrun train.py"')
    parsed = subprocess.run(
        [SHELL, "-n", "-c", text], capture_output=True, text=True, check=False, timeout=_SHELL_SECONDS
    )
    if parsed.returncode != 0 or parsed.stderr:
        said = parsed.stderr.strip().splitlines()
        reason = said[0].rpartition("line ")[2].partition(": ")[2] if said else "syntax error"
        raise SettingsError(
            f"cmd={text!r}: {reason}",
            remedy=f"quote it as for a shell: {SHELL} reads it",
        )


def check_files(text: str, files: Collection[str], *, folder: str, root: Path | None = None) -> None:
    """Refuse a command line whose program or script is a file that does not exist.

    Only relative paths are checked: an absolute one may exist on the node. So is a program without a slash, which PATH finds there.

    Args:
        text: the command line.
        files: paths of the files in the working folder, relative to it.
        folder: the working folder, for the message.
        root: the working folder if it is on this machine, where files count that are not among `files`.

    Raises:
        SettingsError: names the file, and those that exist.
    """
    words = _first_command(text)
    if not words:
        return
    program = words[0]
    if "/" not in program and program in files:
        raise SettingsError(
            f"cmd={text!r}: {program} is a file, and the shell looks for programs on PATH only",
            remedy=f"write ./{program}, or python {program}",
        )
    wanted = program if "/" in program else _script(words[1:])
    if wanted is None or not _PLAIN_NAME.fullmatch(wanted):
        return
    path = PurePosixPath(wanted)
    if path.is_absolute() or ".." in path.parts or str(path) in files or (root is not None and (root / path).is_file()):
        return
    raise SettingsError(f"{wanted}: no such file in {folder}", remedy=_nearest(str(path), files))


def check_program(text: str, *, environment: Mapping[str, str]) -> None:
    """Refuse a command line whose program does not exist on this machine.

    Args:
        text: the command line.
        environment: its environment variables, with PATH.

    Raises:
        SettingsError: the shell finds neither a program, nor a keyword or command of its own.
    """
    words = _first_command(text)
    if not words or not _PLAIN_NAME.fullmatch(words[0]) or "/" in words[0]:
        return
    known = subprocess.run(
        [SHELL, "-c", 'type -t -- "$1"', SHELL, words[0]],
        env=dict(environment),
        capture_output=True,
        check=False,
        timeout=_SHELL_SECONDS,
    )
    if known.returncode != 0:
        raise SettingsError(f"cmd={text!r}: {words[0]}: no such program on PATH", remedy=not_found_remedy())


def not_found_remedy() -> str:
    """What to do about a program that PATH does not have (exit status 127)."""
    return (
        "use a program that is installed there, such as python or torchrun, one of the code folder by its path, "
        "e.g. ./train.sh, or on a cluster an image that has it: IMAGE=…"
    )


def title(text: str) -> str:
    """A name for the command line: that of its script without suffix, else of its program; may be empty."""
    words = _first_command(text)
    if not words:
        return ""
    return PurePosixPath(_script(words[1:]) or words[0]).stem


def _first_command(text: str) -> list[str]:
    """The words up to the first operator of the shell, without assignments before them; empty if they cannot be told."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:  # valid for the shell, e.g. an apostrophe in a comment
        return []
    end = next((index for index, word in enumerate(words) if set(word) <= set(_OPERATORS)), len(words))
    start = next((index for index, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    return words[start:end]


def _script(arguments: list[str]) -> str | None:
    """The script among the arguments of an interpreter or of torchrun: options before it may have values."""
    for word in arguments:
        if word in _NO_SCRIPT:
            return None
        if word.endswith(_SCRIPTS) and not word.startswith("-"):
            return word
    return None


def _nearest(path: str, files: Collection[str]) -> str:
    meant = did_you_mean(path, sorted(files))
    if meant:
        return meant
    scripts = sorted(one for one in files if one.endswith(_SCRIPTS)) or sorted(files)
    if not scripts:
        return "name the folder that has it: CODE=…"
    rest = f", and {len(scripts) - _SHOWN} more" if len(scripts) > _SHOWN else ""
    return f"files there: {', '.join(scripts[:_SHOWN])}{rest}"
