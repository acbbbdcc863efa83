"""User code in a stack: a user looks for the line that they wrote, not for the platform and torch around it."""

from __future__ import annotations

import os
import sysconfig
import traceback
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_NOT_USERS = tuple(
    f"{folder}/"
    for folder in (
        *(str(_ROOT / package) for package in ("training", "observability", "infra", "platform_charts", "tune")),
        *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    )
)


def is_user_code(file: str) -> bool:
    """Whether a file is neither the platform's, nor Python's, nor an installed package's."""
    return not file.startswith(("<frozen ", *_NOT_USERS))


def user_traceback(error: BaseException) -> str:
    """The traceback from the first frame of user code on, of each chained exception; complete if there is no such frame.

    A syntax error of user code is its own place and has no frame there.
    """
    summary = traceback.TracebackException.from_exception(error)
    chained: traceback.TracebackException | None = summary
    while chained is not None:
        is_own_syntax = issubclass(chained.exc_type or object, SyntaxError) and is_user_code(chained.filename or "<")
        none = len(chained.stack) if is_own_syntax else 0
        own = next((index for index, frame in enumerate(chained.stack) if is_user_code(frame.filename)), none)
        chained.stack[:] = chained.stack[own:]
        chained = chained.__cause__ or chained.__context__
    return "".join(summary.format())


def named_at_source(text: str, *, folder: Path, source: Path | None) -> str:
    """A message with the paths of a run's copy of the code replaced by those of the folder that its user edits, if that is known.

    The lines of code that a traceback quotes are those of the copy.
    """
    return text if source is None or not source.is_dir() else text.replace(f"{folder}{os.sep}", f"{source}{os.sep}")
