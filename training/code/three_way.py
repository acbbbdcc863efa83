"""Policy: what makes two copies of a folder equal, given what both had when they last were."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

Act = Literal["push", "pull", "delete here", "delete there", "keep both", "agree"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """What to do about one path.

    Attributes:
        path: the path.
        act: `push` copies from here to there, `pull` back, `keep both` renames the copy there, `agree` only notes the state.
        here: sha256 of the file here before the step; None if there is none.
        there: the same, there.
        restores: whether the file was deleted on the side that gets it, because the other side changed it.
    """

    path: str
    act: Act
    here: str | None
    there: str | None
    restores: bool = False


def steps(
    base: Mapping[str, str],
    here: Mapping[str, str],
    there: Mapping[str, str],
    *,
    leaves_out: Callable[[str], bool] = lambda _: False,
) -> Iterator[Step]:
    """The steps that make two folders equal, sorted by path.

    A file that changed on one side only is copied to the other, or deleted there. A file that changed on both is kept twice. A
    file that was deleted on one side and changed on the other is kept.

    Args:
        base: sha256 of each file when both sides were equal.
        here: sha256 of each file here.
        there: sha256 of each file there.
        leaves_out: whether a path is none of the synchronization's business.
    """
    for path in sorted({*base, *here, *there}):
        if leaves_out(path):
            continue
        before, mine, theirs = base.get(path), here.get(path), there.get(path)
        if mine == theirs:
            if before != mine:
                yield Step(path=path, act="agree", here=mine, there=theirs)
            continue
        act, restores = _act(before, mine, theirs)
        yield Step(path=path, act=act, here=mine, there=theirs, restores=restores)


def name_of_copy(path: str, *, label: str, taken: Callable[[str], bool]) -> str:
    """A free name beside a file for the other side's version, e.g. `model.conflict-session-notes.py`.

    Args:
        path: of the file.
        label: name of the other side.
        taken: whether a path exists on either side.
    """
    pure = PurePosixPath(path)
    for number in range(1, 10_000):
        suffix = "" if number == 1 else f"-{number}"
        found = str(pure.with_name(f"{pure.stem}.conflict-{label}{suffix}{pure.suffix}"))
        if not taken(found):
            return found
    raise AssertionError("ten thousand conflicts of one file")


def _act(before: str | None, mine: str | None, theirs: str | None) -> tuple[Act, bool]:
    if mine == before:
        return ("delete here", False) if theirs is None else ("pull", False)
    if theirs == before:
        return ("delete there", False) if mine is None else ("push", False)
    if mine is None:
        return "pull", True
    if theirs is None:
        return "push", True
    return "keep both", False
